"""Flash attention where it is faster on this CPU (--flash-attn auto), plugged in at `before_load`.

Without it llama.cpp's usual choice stays.
"""
