"""Everything between a conversation and a prompt, and between text and messages: no I/O, no tokens."""
