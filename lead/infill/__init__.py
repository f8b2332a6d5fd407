"""`/infill`: text between two others."""
