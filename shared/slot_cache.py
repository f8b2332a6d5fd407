"""Which tokens are in one slot of a KV cache, as lead and back track it."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class SlotCache:
    """`tokens` are valid, at positions 0, 1, …; the native cache may hold more, which are yet to be trimmed.

    valid in the cache       [0 ........ len(tokens))
    physically in the cache  [0 .............. n_physical)
    """

    index: int
    tokens: list[int] = field(default_factory=list)
    n_physical: int = 0

    def __len__(self) -> int:
        """Number of valid tokens."""
        return len(self.tokens)

    def keep(self, n_keep: int) -> None:
        """Invalidate all but the first `n_keep` tokens."""
        del self.tokens[n_keep:]

    def restore(self, tokens: list[int]) -> None:
        """Make `tokens` valid again, which were invalidated but not trimmed yet."""
        assert len(tokens) <= self.n_physical, f"slot {self.index} does not hold {len(tokens)} tokens"
        self.tokens = tokens

    def add(self, tokens: Sequence[int]) -> None:
        """Record that `tokens` were decoded after the valid ones; a trim must have come before."""
        assert self.n_physical == len(self.tokens), f"slot {self.index} was not trimmed before a decode"
        self.tokens.extend(tokens)
        self.n_physical = len(self.tokens)

    def share(self, source: "SlotCache", n_keep: int) -> None:
        """Record that the first `n_keep` tokens of `source` were copied into this empty slot."""
        assert self.n_physical == 0, f"slot {self.index} was not emptied before a copy"
        assert 0 < n_keep <= len(source.tokens), f"slot {source.index} has no {n_keep} tokens to share"
        self.tokens = source.tokens[:n_keep]
        self.n_physical = n_keep

    def take_trim(self) -> tuple[int, int] | None:
        """(slot, n_keep) if the native cache must be trimmed before the next decode; the caller does that."""
        if self.n_physical <= len(self.tokens):
            return None
        self.n_physical = len(self.tokens)
        return self.index, self.n_physical

    def shared_with(self, tokens: list[int]) -> int:
        """Length of the common prefix of the valid tokens and `tokens`."""
        return common_prefix_length(self.tokens, tokens)

    def reuse_score(self, tokens: list[int]) -> int:
        """Length of the common prefix if it is at least half of `tokens` or of the valid tokens, else 0.

        Most texts share a chat template or a system prompt. That alone is no reason to overwrite a
        conversation that may be continued while another slot is free.
        """
        n_shared = self.shared_with(tokens)
        return n_shared if 2 * n_shared >= min(len(tokens), len(self.tokens)) else 0


def common_prefix_length(one: list[int], other: list[int]) -> int:
    """Length of the common prefix, by bisection: comparing slices is much faster than a loop."""
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
