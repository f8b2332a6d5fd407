"""Speculation: how many draft tokens the next step verifies, and whether to wait for more of them.

Start reading at `manager`, which the scheduler and the loop call. Its parts:

    one sequence        drafts: the draft of each source, and the progress of each source
    learned             forecast: how many tokens will be right; arrivals: when more tokens come
    decided             policy, within what memory allows (batching); inline_drafting: when the engine drafts
    sent to backs       tuning
    counted             speculation_stats
    tuned numbers       constants
"""
