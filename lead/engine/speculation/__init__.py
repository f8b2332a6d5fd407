"""The planner: how many draft tokens to verify in the next step, and whether to wait for more of them."""
