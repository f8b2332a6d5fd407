"""Parts of `python -m bench`, and how they start and ask programs."""
