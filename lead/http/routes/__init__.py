"""HTTP: what clients and backs speak with the lead."""
