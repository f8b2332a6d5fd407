"""Layers, and the experts of a mixture, on the devices that have room for them (--fit).

Plugged in at `place_layers` (`shared.rings`). Without it layers are where --n-gpu-layers says, and
llama.cpp divides them among devices.
"""
