"""Figures for Prometheus: what is counted while requests run, and how it is shown."""
