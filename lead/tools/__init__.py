"""Tools: how a model writes calls of them, read from its chat template; parsed, and asked for by a grammar."""
