"""`lead doctor` and `back doctor`: find out why there is no speed-up."""
