"""Pairing for machines that join: codes, and the credentials that a joined machine keeps.

Leads are found on the local network by mDNS.
"""
