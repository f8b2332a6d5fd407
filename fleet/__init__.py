"""What concerns many leads and backs together."""
