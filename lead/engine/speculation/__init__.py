"""Speculation: how many draft tokens the next step verifies, and whether to wait for more of them.

Start reading at `manager`, which the scheduler and the loop call. Its parts:

    one sequence        drafts: of each source, and its progress
    learned             forecast: how many tokens will be right, and when (arrivals)
    decided             policy, within what memory allows (batching); inline_drafting: when to draft here
    sent to backs       tuning
    counted             speculation_stats
    tuned numbers       constants
"""
