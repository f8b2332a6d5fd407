"""The process that owns the model: a blocking loop of plan, decode, commit."""
