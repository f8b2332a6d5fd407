"""Exact mode: `--exact` gives the same text bit for bit, with any drafts."""
