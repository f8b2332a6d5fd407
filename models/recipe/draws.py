"""The random draws that the generator is made of; each takes one number from the stream."""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def chance(rng: random.Random, share: float) -> bool:
    """True in `share` of the cases."""
    return rng.random() < share


def by_share(rng: random.Random, table: Sequence[tuple[float, T]]) -> T:
    """The first value whose bound lies above the number drawn; the bounds rise, the last one is not read."""
    drawn = rng.random()
    for bound, value in table[:-1]:
        if drawn < bound:
            return value
    return table[-1][1]
