"""Parts of `python -m bench fuzz`."""
