"""The draft model's distribution over its next token."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

_SMALLEST_LOG = -13.0
"""Tokens e^13 times less likely than the likeliest are left out: each of the others takes time to project."""


@dataclass(frozen=True, slots=True, eq=False)
class NextTokens:
    """Draft tokens in ascending order and their probabilities; what is hardly possible is left out."""

    ids: NDArray[np.int32]
    probabilities: NDArray[np.float32]

    @classmethod
    def of(cls, logits: NDArray[np.float32]) -> Self:
        """From logits, shape (n_draft_vocab,), which are not kept."""
        largest = float(logits.max())
        ids = np.flatnonzero(logits > largest + _SMALLEST_LOG).astype(np.int32)
        weights = np.exp(logits[ids] - largest)
        return cls(ids, weights / weights.sum())

    def of_token(self, token: int) -> float:
        """The probability of one token."""
        place = int(np.searchsorted(self.ids, token))
        if place < len(self.ids) and self.ids[place] == token:
            return float(self.probabilities[place])
        return 0.0

    def in_range(self, ranks: NDArray[np.int32], start: int, end: int) -> "NextTokens":
        """Those with start <= ranks[token] < end; probabilities stay as they are."""
        own = ranks[self.ids]
        return self.where((own >= start) & (own < end))

    def where(self, chosen: NDArray[np.bool_]) -> "NextTokens":
        """Some of them; chosen: for each."""
        return NextTokens(self.ids[chosen], self.probabilities[chosen])

    def without(self, token: int) -> "NextTokens":
        """All but one."""
        return self.where(self.ids != token)

    def likeliest(self, n: int) -> "NextTokens":
        """The `n` likeliest, in any order."""
        if len(self.ids) <= n:
            return self
        best = np.argpartition(self.probabilities, len(self.ids) - n)[-n:]
        return NextTokens(self.ids[best], self.probabilities[best])

    @property
    def total(self) -> float:
        """The probability of all together."""
        return float(self.probabilities.sum())
