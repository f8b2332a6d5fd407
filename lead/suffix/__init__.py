"""Suffix memory: drafts from recent texts of the same API key (SuffixDecoding)."""
