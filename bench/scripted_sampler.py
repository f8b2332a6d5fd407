"""A sampler that writes a text known beforehand, so that a drafter can be right at any given rate."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Sampler

GREEDY = SamplingParameters(temperature=0.0, seed=0)


class ScriptedSampler(Sampler):
    """Chooses predetermined tokens, whatever the logits are."""

    def __init__(self, tokens: Sequence[int]) -> None:
        """`tokens` by position in the sequence, the prompt included."""
        super().__init__(GREEDY, None, [])
        self._tokens = tokens

    def choose(self, logits: NDArray[np.float32], position: int) -> int:  # noqa: ARG002 - a script needs none
        return self._tokens[position]

    def accept(self, token: int) -> None:
        """Nothing to remember."""
