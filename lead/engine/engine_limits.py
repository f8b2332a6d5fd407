"""What the model can hold, as the scheduler sees it."""

from dataclasses import dataclass

from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.llama.width_policy import WidthPolicy
from shared.prompt_cache import NO_PROMPT_CACHE, PromptCacheSize


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """`n_ctx` counts all slots together, `n_ctx_sequence` is the context of one sequence.

    While some sequence is generating, the prompts of others are processed in chunks of `n_prompt_chunk`
    tokens a step, so that it does not stall; of more where that is quick (`prompt_chunk`).
    """

    n_slots: int
    n_ctx: int
    n_ctx_sequence: int
    n_batch: int
    n_prompt_chunk: int = 128
    traits: MemoryTraits = PLAIN
    n_checkpoints: int = 0  # stored states of each slot
    prompt_cache: PromptCacheSize = NO_PROMPT_CACHE
    n_ctx_slot: int | None = None  # where slots have cells of their own
    widths: WidthPolicy | None = None  # in which the model decodes; None: in any
    tiles_attention: bool = False  # prompts may be decoded apart (`shared.llama.span.wants_two_passes`)

    @property
    def n_ctx_each(self) -> int:
        """Cells that one slot may fill."""
        return self.n_ctx if self.n_ctx_slot is None else self.n_ctx_slot

    @property
    def rolls_states_back(self) -> bool:
        """Whether what was decoded can be removed from recurrent states, if it was decoded last."""
        return bool(self.traits.n_rollback) and self.traits.equal_lengths

    @property
    def pads_unequal_lengths(self) -> bool:
        """Whether the model pads spans of unequal lengths (`shared.llama.span.padding`)."""
        return self.traits.n_rollback != 0 and (self.traits.equal_lengths or self.n_ctx_slot is not None)
