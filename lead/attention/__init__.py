"""Chooses flash attention if it is faster on this CPU (--flash-attn auto).

Plugged in at the seam `before_load`. Without this ring llama.cpp's default applies.
"""
