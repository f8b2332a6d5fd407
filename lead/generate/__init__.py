"""`lead generate`: continues one text in one command."""
