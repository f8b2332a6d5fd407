"""`lead doctor` and `back doctor`: why there is no speed-up, in sentences, and what to change."""
