"""Drafting with a model whose vocabulary is not the lead's: distributions over the lead's tokens.

Two vocabularies split the same bytes into different tokens. Here *draft tokens* belong to the draft model's
vocabulary, and *target tokens* to the lead's.
"""
