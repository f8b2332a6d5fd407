"""Pairing: machines join with a code (`lead invite`), and come in by a door of their own."""
