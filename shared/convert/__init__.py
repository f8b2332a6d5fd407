"""Models of other formats (llama2.c, GPT-2) become GGUF files, and small models grow."""
