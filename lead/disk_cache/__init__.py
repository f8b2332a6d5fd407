"""Texts on disk: `--cache-disk` keeps conversations beyond the end of a process.

`--slot-save-path` saves the contents of a slot under a name.
"""
