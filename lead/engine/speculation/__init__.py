"""Speculation: how many draft tokens the next step verifies, and whether to wait for more of them.

Start reading at `manager`, which the scheduler and the loop call. Its parts:

    one sequence        drafts: those of each source, and how far it has come
    what was learned    forecast: how many tokens will be right, and when (arrivals)
    what is chosen      policy, among what memory allows (batching); inline_drafting: when to draft here
    what backs are told tuning
    what was done       speculation_stats
    tuned numbers       constants
"""
