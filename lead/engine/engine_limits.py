"""What the model can hold, as the scheduler sees it."""

from dataclasses import dataclass

from shared.llama.batch_invariance import InvariantWidths
from shared.llama.batch_layout import LayoutRules
from shared.llama.memory_traits import PLAIN, MemoryTraits
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
    widths: InvariantWidths | None = None  # in which the model decodes; None: in any
    tiles_attention: bool = False

    @property
    def layout_rules(self) -> LayoutRules:
        """By which a step's spans are divided into passes."""
        return LayoutRules(
            self.n_batch,
            self.n_ctx_sequence,
            self.traits,
            own_cells=self.n_ctx_slot is not None,
            widths=self.widths,
            tiles_attention=self.tiles_attention,
        )
