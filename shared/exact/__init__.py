"""Exact mode: batches whose bits do not depend on their size, and the measurement of such sizes."""
