"""Pairing: machines join with a code (`lead invite`), and are served on a port of their own."""
