"""The rings of the lead, and the seams at which they are plugged in."""
