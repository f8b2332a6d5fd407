"""`lead convert`."""
