"""Real programs under a seeded schedule of faults and hostility, each answer checked.

In the manner of etcd's robustness tests: traffic, failpoints, a model of what is right, and for each failure
what is needed to reproduce it.
"""
