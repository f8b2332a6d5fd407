"""What the model can hold, as the scheduler sees it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """`n_ctx` counts all slots together, `n_ctx_sequence` one sequence.

    While some sequence is generating, the prompts of others are processed in chunks of at most
    `n_prompt_chunk` tokens a step, so that it does not stall.
    """

    n_slots: int
    n_ctx: int
    n_ctx_sequence: int
    n_batch: int
    n_prompt_chunk: int = 128
    can_trim: bool = True
    n_ctx_slot: int | None = None  # where slots have cells of their own
