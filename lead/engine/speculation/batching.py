"""How draft tokens of several sequences share a step: the likeliest first, or equally many of each."""

from collections.abc import Sequence
from itertools import accumulate, zip_longest
from typing import Protocol

Line = Sequence[float]
"""The survivals of a sequence's draft tokens: they only fall."""


class Batching(Protocol):
    """A batch grows in units: of one draft token, or of one for each sequence."""

    def unit(self, n_sequences: int) -> int:
        """Draft tokens in one unit."""

    def most_units(self, lengths: Sequence[int], n_most: int) -> int:
        """Units that drafts of these lengths fill, and that have at most `n_most` tokens together."""

    def right(self, lines: Sequence[Line], n_units: int) -> list[float]:
        """Expected tokens of a step with 0, 1, … up to `n_units` units, or as many as there are."""

    def depths(self, lines: Sequence[Line], n_units: int) -> tuple[int, ...]:
        """How many draft tokens of each sequence are in the batch."""


class Free:
    """The likeliest draft tokens first, whatever sequence they are for."""

    def unit(self, _n_sequences: int) -> int:
        return 1

    def most_units(self, lengths: Sequence[int], n_most: int) -> int:
        return min(sum(lengths), n_most)

    def right(self, lines: Sequence[Line], n_units: int) -> list[float]:
        survivals = lines[0] if len(lines) == 1 else sorted((s for line in lines for s in line), reverse=True)
        return list(accumulate(survivals[:n_units], initial=float(len(lines))))

    def depths(self, lines: Sequence[Line], n_units: int) -> tuple[int, ...]:
        if len(lines) == 1:
            return (n_units,)
        ranked = sorted(
            ((survival, i) for i, line in enumerate(lines) for survival in line), key=lambda pair: -pair[0]
        )
        taken = [i for _, i in ranked[:n_units]]
        return tuple(taken.count(i) for i in range(len(lines)))


class Equal:
    """The same depth for all, where llama.cpp would decode spans of different lengths in several passes.

    A sequence with a shorter draft gets tokens that are thrown away (`shared.llama.span.n_filler`).
    """

    def unit(self, n_sequences: int) -> int:
        return n_sequences

    def most_units(self, lengths: Sequence[int], n_most: int) -> int:
        return min(max(lengths), n_most // len(lengths))

    def right(self, lines: Sequence[Line], n_units: int) -> list[float]:
        columns = [sum(column) for column in zip_longest(*lines, fillvalue=0.0)]
        return list(accumulate(columns[:n_units], initial=float(len(lines))))

    def depths(self, lines: Sequence[Line], n_units: int) -> tuple[int, ...]:
        return tuple(min(len(line), n_units) for line in lines)
