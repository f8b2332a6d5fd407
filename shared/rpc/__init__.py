"""The ring for llama.cpp's RPC backend."""
