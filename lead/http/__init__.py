"""Bodies to requests, updates to events, and the web UI."""
