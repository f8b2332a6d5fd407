"""The options of `lead`, its keys and limits."""
