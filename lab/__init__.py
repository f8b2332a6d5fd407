"""The laboratory: the parts of `lead plan`, `lead bench` and both doctors, and the project's own benchmarks.

`parts` and `campaign` are for developers (`python -m bench`): no wheel contains them.
"""
