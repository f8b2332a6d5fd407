"""llama.cpp: the only package of this project that imports llama_cpp.

Uses llama_cpp's low-level functions, because its high-level classes turn every return code of `llama_decode`
into one RuntimeError and drop pieces over 32 bytes. Everything is range-checked here before native code
sees it: an id out of range aborts the process.
"""
