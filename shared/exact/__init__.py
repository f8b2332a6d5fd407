"""Exact mode: batches whose bits do not depend on their size, and which sizes do so on this machine."""
