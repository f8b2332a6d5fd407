"""Tool calls: derives their format from a chat template, reads and constrains them."""
