"""Programs that are not installed with the project: the demo, and how to start the real processes."""
