"""A chain of draft tokens, put together from what all sources propose, ready to be verified."""

from collections.abc import Sequence
from typing import NamedTuple

MAX_DEPTH = 32
"""No step verifies more draft tokens of a sequence."""


class DraftChain(NamedTuple):
    """Tokens to follow the committed ones, and the source of each.

    probabilities[i]: that token i is accepted if those before it are.
    """

    tokens: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()

    def cut(self, n: int) -> "DraftChain":
        """Its first `n` tokens."""
        if n >= len(self.tokens):
            return self
        return DraftChain(self.tokens[:n], self.sources[:n], self.probabilities[:n])

    def extended(self, tokens: Sequence[int], source: str) -> "DraftChain":
        """Followed by mere guesses."""
        n = len(tokens)
        return DraftChain(
            (*self.tokens, *tokens), (*self.sources, *[source] * n), (*self.probabilities, *[0.0] * n)
        )


EMPTY_CHAIN = DraftChain()
