"""`lead service`."""
