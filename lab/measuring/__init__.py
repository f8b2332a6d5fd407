"""`lead bench`: tokens/s of a model, alone and with each drafter.

The project's own benchmarks use this package, too.
"""
