"""A discrete-event model of a lead and its backs, in which the engine's scheduler and planner are real."""
