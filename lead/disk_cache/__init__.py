"""Texts on disk: `--cache-disk` keeps conversations beyond the end of a process.

`--slot-save-path` saves what a slot holds under a name.
"""
