"""Heads: drafting with the target's own MTP or EAGLE-3 heads."""
