"""The interface to the target model."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shared.cache_edits import SlotMemory
from shared.llama.span import Span

Logits = list[NDArray[np.float32]]
"""For each span, shape (n_logits, n_vocab)."""


class Target(SlotMemory, Protocol):
    """A model with a KV cache in slots (`shared.llama.model.Model`)."""

    is_offloaded: bool = False
    """Whether a GPU or another machine computes some of the layers."""
    overlaps: bool = False
    """Whether the last step left this thread free most of the time between `launch` and its end."""

    def decode(self, spans: Sequence[Span]) -> Logits:
        """The logits of each span; a `Layout` is decoded as it was planned."""
        ...

    def launch(self, spans: Sequence[Span]) -> Callable[[], Logits]:
        """Start what `decode` does; the returned function waits for the end and returns the logits."""
        logits = self.decode(spans)
        return lambda: logits
