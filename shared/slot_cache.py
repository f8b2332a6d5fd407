"""The books of one slot of a KV cache: which tokens' keys and values are in it."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class SlotCache:
    """`tokens` are valid at positions 0, 1, …; the native cache may hold more behind them, to be trimmed.

    valid in the cache       [0 ........ len(tokens))
    physically in the cache  [0 .............. n_physical)
    """

    index: int
    tokens: list[int] = field(default_factory=list)
    n_physical: int = 0

    def __len__(self) -> int:
        """How many tokens are valid."""
        return len(self.tokens)

    def keep(self, n_keep: int) -> None:
        """Only the first `n_keep` tokens stay valid."""
        del self.tokens[n_keep:]

    def revive(self, tokens: list[int]) -> None:
        """`tokens`, which were given up and not trimmed yet, are valid again."""
        assert len(tokens) <= self.n_physical, f"slot {self.index} does not hold {len(tokens)} tokens"
        self.tokens = tokens

    def add(self, tokens: Sequence[int]) -> None:
        """`tokens` were decoded behind the valid ones, after a trim."""
        assert self.n_physical == len(self.tokens), f"slot {self.index} was not trimmed before a decode"
        self.tokens.extend(tokens)
        self.n_physical = len(self.tokens)

    def share(self, source: "SlotCache", n_keep: int) -> None:
        """The first `n_keep` tokens of `source` were copied into this slot, which was empty."""
        assert self.n_physical == 0, f"slot {self.index} was not emptied before a copy"
        assert 0 < n_keep <= len(source.tokens), f"slot {source.index} has no {n_keep} tokens to share"
        self.tokens = source.tokens[:n_keep]
        self.n_physical = n_keep

    def take_trim(self) -> tuple[int, int] | None:
        """(slot, n_keep) if the native cache has to be cut back before the next decode: told once."""
        if self.n_physical <= len(self.tokens):
            return None
        self.n_physical = len(self.tokens)
        return self.index, self.n_physical

    def shared_with(self, tokens: list[int]) -> int:
        """The length of the common prefix of the valid tokens and `tokens`."""
        return n_alike(self.tokens, tokens)

    def affinity(self, tokens: list[int]) -> int:
        """How much of `tokens` it holds already, if that is at least half of them or of what it holds; or 0.

        All texts begin alike, with a chat template or a system prompt: that alone is no reason to write over
        one that may go on, while another slot is free.
        """
        n_shared = self.shared_with(tokens)
        return n_shared if 2 * n_shared >= min(len(tokens), len(self.tokens)) else 0


def n_alike(one: list[int], other: list[int]) -> int:
    """The length of their common prefix; by halves, since comparing slices is quick and a loop is not."""
    n = min(len(one), len(other))
    if one[:n] == other[:n]:
        return n
    n_equal, n_unequal = 0, n
    while n_unequal - n_equal > 1:
        middle = (n_equal + n_unequal) // 2
        if one[n_equal:middle] == other[n_equal:middle]:
            n_equal = middle
        else:
            n_unequal = middle
    return n_equal
