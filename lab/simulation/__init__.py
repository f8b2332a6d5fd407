"""A discrete-event model of a lead and its backs; the engine's scheduler and speculation in it are real."""
