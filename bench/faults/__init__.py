"""Fault injection: real programs under a seeded schedule of faults, each answer checked.

In the manner of etcd's robustness tests: traffic, failpoints, a model of what is right, and for each failure
what is needed to reproduce it.
"""

from bench.faults.program import main

__all__ = ["main"]
