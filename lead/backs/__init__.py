"""Backs as seen by the lead: their connections, their limits, and who drafts for whom."""
