"""Places layers, and the experts of a mixture, on the devices that have room for them (--fit).

Plugged in at `place_layers` (`shared.rings`). Without this ring --n-gpu-layers decides, and llama.cpp divides
the layers among devices.
"""
