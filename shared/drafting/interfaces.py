"""Interfaces of what a drafter uses: a model, samplers, and perhaps a look ahead in another vocabulary."""

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
    """The seam to the model (`shared.llama.model.Model`)."""

    n_batch: int
    n_vocab: int
    traits: MemoryTraits

    def decode(self, spans: Sequence[Span]) -> list[NDArray[np.float32]]:
        """Decode in one forward pass; logits for each span, shape (n_logits, n_vocab).

        Raises KvCacheFullError, and DecodeAbortedError after `Interrupt.set`.
        """


class Interrupt(Protocol):
    """The seam to what stops `DraftModel.decode` (`shared.llama.abort_callback`)."""

    def set(self) -> None:
        """Stop the decode under way, which another thread has called."""

    def clear(self) -> None:
        """The next decode is not stopped."""


class MakeSampler(Protocol):
    """The seam to llama.cpp's filters and grammars (`shared.sampling.factory.drafting_sampler`)."""

    def __call__(
        self, parameters: SamplingParameters, history: list[int], like: Sampler | None = None, /
    ) -> Sampler:
        """A sampler for a sequence with the tokens `history`; `like`: that of one with a common prefix."""


class LookAhead(Protocol):
    """The seam to a model of another vocabulary (`shared.translation.translating_model`)."""

    def __call__(self, choices: Mapping[int, int], /) -> dict[int, NDArray[np.float32]]:
        """Better logits of some slots, now that these tokens (slot → token) would be chosen; at last none."""
