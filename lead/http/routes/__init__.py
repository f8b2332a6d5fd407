"""The HTTP routes for clients and backs."""
