"""The capacity of the model, for the scheduler."""

from dataclasses import dataclass

from shared.llama.batch_layout import LayoutRules
from shared.text_store import NO_PROMPT_CACHE, PromptCacheSize


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits(LayoutRules):
    """The capacity of the model. n_ctx: the number of KV cells of all slots together.

    While some sequence is generating, prompts of other sequences are processed in chunks of `n_prompt_chunk`
    tokens per step, so that the generation does not stall. Chunks are larger where steps are quick
    (`PromptChunk`). n_checkpoints: the number of stored states per slot. step_bytes: see `MovePrice`.
    n_ubatch: an image that must be decoded in one ubatch can have at most this many rows.
    """

    n_slots: int
    n_ctx: int
    n_prompt_chunk: int = 128
    n_checkpoints: int = 0
    prompt_cache: PromptCacheSize = NO_PROMPT_CACHE
    step_bytes: int = 0
    n_ubatch: int = 512
