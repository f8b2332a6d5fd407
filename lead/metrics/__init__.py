"""The ring for Prometheus metrics."""
