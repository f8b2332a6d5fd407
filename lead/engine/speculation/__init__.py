"""Speculation: how many draft tokens the next step verifies, and whether to wait for more of them.

Start reading at `manager`, which the scheduler and the loop call. Its parts:

    what is proposed    board, draft_tree, merge, draft_chain
    what was learned    step_cost, acceptance, arrivals
    what is chosen      policy, adaptive (with batching, speedup)
    what backs are told tuning
    what was done       stats
    tuned numbers       constants
"""
