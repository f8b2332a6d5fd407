"""The seam to the target model."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shared.cache_edits import SlotMemory
from shared.llama.span import Span


class Target(SlotMemory, Protocol):
    """A model with a KV cache in slots (`shared.llama.model.Model`)."""

    is_offloaded: bool
    """Whether a GPU or another machine computes some of the layers."""

    def decode(self, spans: Sequence[Span]) -> list[NDArray[np.float32]]:
        """Logits for each span, shape (n_logits, n_vocab); a `Layout` is decoded as it was planned."""
