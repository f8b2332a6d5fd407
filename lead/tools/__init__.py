"""Tool calls: derives their format from a chat template, reads calls, and constrains them."""
