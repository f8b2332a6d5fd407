"""A discrete-event simulation of a lead and its backs, with the real scheduler and speculation."""
