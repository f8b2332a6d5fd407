"""Pairing: machines join with a code (`lead invite`), and connect to a separate port."""
