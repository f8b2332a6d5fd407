"""Calls llama.cpp; no other package of this project imports llama_cpp.

It uses llama_cpp's low-level functions, because the high-level classes turn every return code of
`llama_decode` into one RuntimeError and drop token texts over 32 bytes. All arguments are range-checked here
before native code sees them, because an id out of range aborts the process.
"""
