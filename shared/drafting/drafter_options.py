"""Options of a drafter: how far ahead it drafts, and how it divides its KV cache."""

from dataclasses import dataclass
from typing import Self

from shared.text_store import NO_PROMPT_CACHE, PromptCacheSize

N_FURTHER_STATES = 2
"""A recurrent draft model keeps this many states in addition to the states after each draft token."""
_RUNNERS_UP = 15
"""The number of runners-up ranked for each token. 25 to 54 % of recovered tokens are the first runner-up, 73
to 92 % are among the first sixteen runners-up.

Measured with models/smollm2/acceptance.py.
"""
_BRANCH_TOKENS = 6
"""The approximate number of tokens of a side branch that the lead verifies in one step."""


@dataclass(frozen=True, slots=True)
class DrafterOptions:
    """The options of a drafter. n_window: the maximum number of tokens of a sequence that the model sees.

    While any sequence is drafting, prompts of others are decoded in chunks of at most `n_chunk` tokens per
    step. A draft stops where the product of its confidences falls below `min_confidence`. Each sequence has
    up to `n_branches` side branches of at most `n_branch_tokens` tokens. prompt_cache: the host memory for
    texts of ended sequences. The model needs `n_model_slots` slots in its cache.
    """

    n_slots: int
    n_window: int
    n_ahead: int
    n_chunk: int = 64
    min_confidence: float = 0.0
    n_branches: int = 0
    n_branch_tokens: int = _BRANCH_TOKENS
    prompt_cache: PromptCacheSize = NO_PROMPT_CACHE

    @classmethod
    def for_cache(
        cls,
        n_cells: int,
        *,
        n_slots: int,
        n_train: int,
        n_ahead: int,
        n_branches: int,
        prompt_cache: PromptCacheSize = NO_PROMPT_CACHE,
    ) -> Self:
        """Divide a cache of `n_cells` for a model with a training context of `n_train` tokens.

        Side branches take at most a quarter of the cache.
        """
        share = n_cells // n_slots
        n_branches = min(n_branches, share // 4 // _BRANCH_TOKENS)
        n_window = min(share - n_branches * _BRANCH_TOKENS, n_train)
        return cls(n_slots, n_window, n_ahead, n_branches=n_branches, prompt_cache=prompt_cache)

    @property
    def n_model_slots(self) -> int:
        return self.n_slots * (1 + self.n_branches)

    @property
    def n_choices(self) -> int:
        """The number of candidates to rank for each token."""
        return 1 + _RUNNERS_UP if self.n_branches else 1

    @property
    def n_per_step(self) -> int:
        """The approximate number of draft tokens that the lead verifies in one step."""
        return max(1, self.n_ahead // 2)
