"""Drafting with a model whose vocabulary is not the lead's: distributions over the lead's tokens.

Two vocabularies split the same bytes into different tokens. *Draft tokens* are those of the draft model's
vocabulary here, *target tokens* those of the lead's.
"""
