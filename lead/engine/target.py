"""The interface to the target model."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shared.cache_edits import SlotMemory
from shared.llama.span import Span

Logits = list[NDArray[np.float32]]
"""One array of shape (n_logits, n_vocab) per span."""


class Target(SlotMemory, Protocol):
    """A model with a KV cache in slots (`shared.llama.model.Model`)."""

    is_offloaded: bool = False
    """True if a GPU or another machine computes some of the layers."""
    overlaps: bool = False
    """True if the last step left this thread free most of the time from `launch` to the end of the step."""

    def decode(self, spans: Sequence[Span]) -> Logits:
        """Decode the spans and return the logits of each; a `Layout` is decoded as it was planned."""
        ...

    def launch(self, spans: Sequence[Span]) -> Callable[[], Logits]:
        """Start `decode`; return a function that waits for its end and returns the logits."""
        logits = self.decode(spans)
        return lambda: logits
