"""Context shift: the part of its own text that a sequence sees when the text is longer than the context."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContextShift:
    """When a context of `n_ctx` tokens is full, the older half of the tokens after the first `n_keep` is
    discarded.

        text      [0 .. n_keep) [n_keep .. n_keep + n_discarded) [n_keep + n_discarded .. n_tokens)
        context   [0 .. n_keep)                                  [n_keep .. n_tokens - n_discarded)

    The rest is decoded again, at its new positions. Keeping its keys and values, rotated to these positions,
    would be faster, but they were computed from the discarded tokens, too: neither another engine process nor
    another slot of the same sequence could reproduce them, and memories with recurrent states, learned
    positions or sliding windows cannot do it at all. The context depends on the length of the text alone, so
    the text is still a function of prompt and seed.
    """

    n_ctx: int
    n_keep: int

    def __post_init__(self) -> None:
        if not 0 <= self.n_keep <= self.n_ctx - 2:
            raise ValueError(f"a context of {self.n_ctx} tokens cannot keep {self.n_keep} of them")

    @property
    def n_left(self) -> int:
        """Tokens left in the context just after a shift."""
        return self.n_ctx - self._n_each

    def n_discarded(self, n_tokens: int) -> int:
        """The number of tokens that are no longer in the context of a text of `n_tokens`."""
        n_beyond, n_each = n_tokens - self.n_ctx, self._n_each
        return 0 if n_beyond < 0 else n_each * (1 + n_beyond // n_each)

    def context(self, tokens: Sequence[int]) -> list[int]:
        """The context of the next token of this text: fewer than `n_ctx` tokens."""
        return [*tokens[: self.n_keep], *tokens[self.n_keep + self.n_discarded(len(tokens)) :]]

    @property
    def _n_each(self) -> int:
        """The number of tokens that each shift discards."""
        return (self.n_ctx - self.n_keep) // 2
