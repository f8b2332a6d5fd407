"""Runs real programs under a seeded schedule of faults and hostile traffic; every answer is checked.

Similar to etcd's robustness tests: traffic, failpoints, a model of the right answers, and for each failure
the inputs that reproduce it.
"""
