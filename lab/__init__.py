"""The laboratory: what `lead plan`, `lead bench` and both doctors are made of, and the project's own benches.

`parts` and `campaign` are for developers (`python -m bench`): no wheel has them.
"""
