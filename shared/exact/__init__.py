"""Exact mode: batch sizes whose results are equal bit for bit, and the measurement of such sizes."""
