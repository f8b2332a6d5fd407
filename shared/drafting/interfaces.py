"""Interfaces to the parts that a drafter uses: a model, samplers, and a look-ahead for another vocabulary."""

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
        """Decode the spans in one forward pass; return logits of shape (n_logits, n_vocab) for each span.

        Raises KvCacheFullError, and DecodeAbortedError after `Interrupt.set`.
        """


class Interrupt(Protocol):
    """Stops `DraftModel.decode` from another thread (`shared.llama.abort_callback`)."""

    def set(self) -> None:
        """Stop the current decode, which runs in another thread."""

    def clear(self) -> None:
        """Let the next decode run to its end."""


class MakeSampler(Protocol):
    """Makes samplers with llama.cpp's filters and grammars (`shared.sampling.factory.drafting_sampler`)."""

    def __call__(
        self, parameters: SamplingParameters, history: list[int], like: Sampler | None = None, /
    ) -> Sampler:
        """Return a sampler for a sequence with the tokens `history`.

        like: the sampler of a sequence with a common prefix.
        """


class LookAhead(Protocol):
    """The interface to a model with another vocabulary (`shared.translation.translating_model`)."""

    def __call__(self, choices: Mapping[int, int], /) -> dict[int, NDArray[np.float32]]:
        """Return better logits for some slots, given the tokens that would be chosen (slot → token).

        Returns an empty dict when it has no better logits.
        """
