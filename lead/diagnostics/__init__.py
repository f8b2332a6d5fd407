"""What `--check` and `lead doctor` find out."""
