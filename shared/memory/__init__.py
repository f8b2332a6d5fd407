"""Plans the memory of a model and its context from their sizes, before weights are read."""
