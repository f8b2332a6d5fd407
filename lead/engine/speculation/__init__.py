"""Speculation: how many draft tokens the next step verifies, and whether to wait for more of them."""
