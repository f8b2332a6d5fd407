"""`lead doctor` and `back doctor`: why there is no speed-up."""
