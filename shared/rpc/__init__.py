"""RPC: llama.cpp's RPC backend."""
