"""The rings that the lead has, and where they are plugged in."""
