"""Context shift: which part of its text a sequence sees when the text is longer than the context."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContextShift:
    """A context of `n_ctx` tokens. When it is full, the older half of the tokens after the first `n_keep` is
    discarded.

        text      [0 .. n_keep) [n_keep .. n_keep + n_discarded) [n_keep + n_discarded .. n_tokens)
        context   [0 .. n_keep)                                  [n_keep .. n_tokens - n_discarded)

    The tokens that stay are decoded again, at their new positions. Rotating their keys and values to these
    positions would be faster, but the keys and values depend on the discarded tokens. Another engine process,
    or another slot, could not reproduce them. Recurrent states, learned positions and sliding windows cannot
    be rotated at all.

    The context depends only on the length of the text, so the text remains a function of prompt and seed.
    """

    n_ctx: int
    n_keep: int

    def __post_init__(self) -> None:
        if not 0 <= self.n_keep <= self.n_ctx - 2:
            raise ValueError(f"a context of {self.n_ctx} tokens is too small for keep = {self.n_keep}")

    @property
    def n_left(self) -> int:
        """The number of tokens left in the context just after a shift."""
        return self.n_ctx - self._n_each

    def n_discarded(self, n_tokens: int) -> int:
        """Return how many tokens of a text of `n_tokens` tokens are no longer in the context."""
        n_beyond, n_each = n_tokens - self.n_ctx, self._n_each
        return 0 if n_beyond < 0 else n_each * (1 + n_beyond // n_each)

    def context(self, tokens: Sequence[int]) -> list[int]:
        """Return the context for the next token of this text: at most `n_ctx` - 1 tokens."""
        return [*tokens[: self.n_keep], *tokens[self.n_keep + self.n_discarded(len(tokens)) :]]

    @property
    def _n_each(self) -> int:
        """The number of tokens that each shift discards."""
        return (self.n_ctx - self.n_keep) // 2
