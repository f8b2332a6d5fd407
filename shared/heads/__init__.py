"""MTP and EAGLE-3 heads in llama.cpp, and the hidden states that they read."""
