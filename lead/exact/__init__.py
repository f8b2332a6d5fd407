"""Exact mode: `--exact` gives the same text bit for bit, whatever is drafted."""
