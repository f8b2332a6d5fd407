"""The parts of `python -m bench`, and helpers that start and call programs."""
