"""Interfaces to the parts that a drafter uses: a model, samplers, and optionally a look-ahead in another
vocabulary.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shared.cache_edits import SlotMemory
from shared.llama.memory_traits import MemoryTraits
from shared.llama.span import Span
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler


class DraftModel(SlotMemory, Protocol):
    """The interface to the draft model (`shared.llama.model.Model`)."""

    n_batch: int
    n_vocab: int
    traits: MemoryTraits

    def decode(self, spans: Sequence[Span]) -> list[NDArray[np.float32]]:
        """Decode in one forward pass; logits for each span, shape (n_logits, n_vocab).

        Raises KvCacheFullError, and DecodeAbortedError after `Interrupt.set`.
        """


class Interrupt(Protocol):
    """Stops `DraftModel.decode` from another thread (`shared.llama.abort_callback`)."""

    def set(self) -> None:
        """Stop the current decode, which runs in another thread."""

    def clear(self) -> None:
        """Do not stop the next decode."""


class MakeSampler(Protocol):
    """Makes samplers with llama.cpp's filters and grammars (`shared.sampling.factory.drafting_sampler`)."""

    def __call__(
        self, parameters: SamplingParameters, history: list[int], like: Sampler | None = None, /
    ) -> Sampler:
        """A sampler for a sequence with the tokens `history`; `like`: that of one with a common prefix."""


class LookAhead(Protocol):
    """The interface to a model with another vocabulary (`shared.translation.translating_model`)."""

    def __call__(self, choices: Mapping[int, int], /) -> dict[int, NDArray[np.float32]]:
        """Better logits of some slots, now that these tokens (slot → token) would be chosen; at last none."""
