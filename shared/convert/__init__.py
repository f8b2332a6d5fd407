"""Converts models of other formats (llama2.c, GPT-2) to GGUF files, and grows small models."""
