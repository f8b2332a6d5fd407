"""The checks of `--check` and `lead doctor`."""
