"""Converts conversations to prompts, and generated text to messages, without I/O and tokens."""
