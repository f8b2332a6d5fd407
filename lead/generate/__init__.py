"""`lead generate`: one text in one command, with a draft model or without, and a comparison of both."""
