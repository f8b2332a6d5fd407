"""Heads: drafting with the target's own MTP heads, or with an EAGLE-3 drafter."""
