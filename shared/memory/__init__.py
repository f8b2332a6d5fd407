"""Plans of the memory that a model and its context take: made from sizes, before weights are read."""
