"""What a model and its context will take of memory: planned from sizes, before weights are read."""
