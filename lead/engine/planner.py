"""The planner: how many draft tokens each sequence verifies in the next step.

The seam is one method. `FixedDepth` is the only policy so far; one that learns T(n) and acceptance while
running takes its place behind the same method.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Offer:
    """Draft tokens that a sequence could verify now: those on the board, as far as it has room for them."""

    sequence: str
    n_tokens: int


class Planner(Protocol):
    """Chooses depths."""

    def depths(self, offers: Sequence[Offer]) -> list[int]:
        """For each offer a depth, 0 ≤ depth ≤ n_tokens."""


class FixedDepth:
    """Verify up to `depth` tokens whenever they are there; never wait for them."""

    def __init__(self, depth: int) -> None:
        self._depth = depth

    def depths(self, offers: Sequence[Offer]) -> list[int]:
        """As many as there are, up to the fixed depth."""
        return [min(offer.n_tokens, self._depth) for offer in offers]
