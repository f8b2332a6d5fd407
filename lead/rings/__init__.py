"""Which rings the lead has, and where they are plugged in."""
