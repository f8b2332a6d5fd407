"""What a context can hold and decode, as llama.cpp has made it."""

from dataclasses import dataclass
from typing import Any

import llama_cpp


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """n_ctx: cells of all slots together. n_batch, n_ubatch: tokens of a decode, and of one of its passes.

    n_ctx_slot: tokens that one slot may have; with one pool of cells all cells, within the training context.
    """

    n_ctx: int
    n_ctx_slot: int
    n_batch: int
    n_ubatch: int


def read_limits(context: Any, n_ctx_train: int) -> ContextLimits:
    """Those of a llama_context; its model was trained with texts of `n_ctx_train` tokens (0: unknown)."""
    n_ctx_slot: int = llama_cpp.llama_n_ctx_seq(context)
    return ContextLimits(
        llama_cpp.llama_n_ctx(context),
        # Models with learned positions (GPT-2) have no others: llama.cpp aborts.
        min(n_ctx_slot, n_ctx_train or n_ctx_slot),
        llama_cpp.llama_n_batch(context),
        llama_cpp.llama_n_ubatch(context),
    )
