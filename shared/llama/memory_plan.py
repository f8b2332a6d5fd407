"""The memory plan of a model, made by `shared.memory.plan_memory`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.llama.memory_size import MemorySize
from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.llama.native_parameters import context_parameters, make_room
from shared.llama.placement import Placement
from shared.settings.model_options import MAX_SLOTS, ModelOptions
from shared.text_store import PromptCacheSize


@dataclass(frozen=True, slots=True)
class ContextNeeds:
    """The requirements on a context, independent of the placement of its layers.

    n_window: the number of tokens in a sliding window; 0: there are none. kv_unified: as in `ModelOptions`,
    but False for a recurrent target with windows.
    """

    n_ctx: int
    n_slots: int
    traits: MemoryTraits
    kv_unified: bool
    n_window: int

    @property
    def is_guarded(self) -> bool:
        """True if a `WindowGuard` keeps the cells that leave the window."""
        return self._is_plain_pool and self.n_window > 0

    @property
    def checks_windows(self) -> bool:
        """True if a slot that was cut back may have lost cells of its window, and must be checked.

        llama.cpp does not report the loss for recurrent models.
        """
        return self.n_window > 0 and not self.traits.can_trim and not self.traits.equal_lengths

    @property
    def has_parts(self) -> bool:
        """True if texts are stored in parts.

        Ranges of cells can be addressed only in one pool, and only if the memory has nothing but cells.
        """
        return self._is_plain_pool and self._n_sequences < MAX_SLOTS

    @property
    def can_store(self) -> bool:
        """True if texts can be stored.

        Memory with windows, if it can be cut to any length, stores texts only in parts. Of a whole text,
        llama.cpp stores only the last window, so the loaded text could not be cut to every length. A part is
        not longer than a window.
        """
        return self.has_parts or not (self.traits.can_trim and self.n_window > 0)

    @property
    def _is_plain_pool(self) -> bool:
        return self.traits == PLAIN and self.kv_unified

    @property
    def _n_sequences(self) -> int:
        return self.n_slots * (2 if self.is_guarded else 1 + self.traits.n_step_checkpoints)

    def parameters(self, options: ModelOptions) -> Any:
        """Return a llama_context_params with room for all sequences and states."""
        parameters, traits = context_parameters(options, self.n_ctx, self.n_slots), self.traits
        make_room(
            parameters,
            self._n_sequences + self.has_parts,
            (traits.n_rollback or 0) if traits.equal_lengths else 0,
            # Between the ubatches of a decode, llama.cpp reuses cells that have left the window.
            one_ubatch=self.is_guarded or not traits.can_trim,
        )
        return parameters


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The context, placement and caches that a model is loaded with.

    files: the state of the files that were read (`start_key`). options: the requested options, completed with
    the chosen batch sizes and layers on devices. placement: None if llama.cpp places layers. step_bytes: the
    bytes of weights read to decode one token. has_long_rope: llama.cpp chooses between two tables of rope
    factors by the length of a sequence's context (LongRoPE). with_heads: MTP layers are loaded. with_workers:
    layers may be on RPC workers.
    """

    path: Path
    files: str
    options: ModelOptions
    context: ContextNeeds
    size: MemorySize
    prompt_cache: PromptCacheSize
    placement: Placement | None
    step_bytes: int
    has_long_rope: bool
    with_heads: bool
    with_workers: bool

    @property
    def parameters(self) -> Any:
        """A llama_context_params for the plan."""
        return self.context.parameters(self.options)
