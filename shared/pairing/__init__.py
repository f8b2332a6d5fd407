"""Pairing, for those who join: codes, and what a joined machine keeps.

Leads are found in the local network by mDNS.
"""
