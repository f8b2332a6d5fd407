"""Many leads and backs as one service on Ray Serve (`serve run fleet.app:app`)."""
