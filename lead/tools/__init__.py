"""Calls of tools: how a model writes them, derived from its chat template; reading and constraining them."""
