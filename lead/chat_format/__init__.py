"""Conversations to prompts, and generated text to messages: no I/O, no tokens."""
