"""Turns HTTP bodies into requests to the engine and its updates into events, and serves the web UI."""
