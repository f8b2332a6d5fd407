"""`lead generate`: generates one text in one command, with or without a draft model, and compares both."""
