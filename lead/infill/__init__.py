"""The ring for `/infill`: text between two others."""
