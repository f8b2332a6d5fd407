"""The draft tokens in a slot of the draft model, their text, and the probabilities after the last ones."""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shared.slot_cache import SlotCache
from shared.translation.byte_vocabulary import ReadToken
from shared.translation.lattice import NextTokens, Node

_N_NODES = 6
"""The number of last draft tokens after each of which the next token's distribution is kept."""


class DecodedText:
    """The draft tokens in a slot, and their text. Offsets are in bytes from the beginning of the text.

    base: the offset of the first decoded token.
    """

    def __init__(self, cache: SlotCache, prefix: Sequence[int]) -> None:
        """prefix: draft tokens before every text (BOS)."""
        self.cache = cache
        self.prefix = [ReadToken(token, b"") for token in prefix]
        self.base = 0
        self.tokens: list[ReadToken] = []
        self.data = bytearray()
        self._ends: list[int] = []
        self._following: dict[int, NextTokens] = {}  # number of tokens -> what follows them

    def __len__(self) -> int:
        """Return the number of draft tokens."""
        return len(self._ends)

    def end_of(self, n_tokens: int) -> int:
        """Return the offset after the first `n_tokens`."""
        return self._ends[n_tokens - 1] if n_tokens else self.base

    def n_until(self, offset: int) -> int:
        """Return the number of draft tokens whose bytes end at `offset` or before."""
        return bisect_right(self._ends, offset)

    def following(self, n_tokens: int) -> NextTokens | None:
        """Return the probabilities of the next draft token after the first `n_tokens`, if they are still
        known.
        """
        return self._following.get(n_tokens)

    def path(self, n_first: int, n_last: int) -> list[Node]:
        """Return a node for each length from n_first to n_last tokens. Stop at the first length whose
        next-token distribution is unknown.
        """
        path = []
        for n in range(n_first, n_last + 1):
            if n not in self._following:
                break
            known = n < n_last and n + 1 in self._following
            path.append(Node(self.end_of(n), self._following[n], self.cache.tokens[n] if known else None))
        return path

    def add(self, tokens: Sequence[ReadToken], rows: NDArray[np.float32]) -> None:
        """Add decoded draft tokens. rows: logits after the last tokens, shape (n_logits, n_draft_vocab).

        Logits after a token inside a word that the tokenizer has changed are discarded.
        """
        n_before = len(self)
        self.cache.add([token for token, _ in tokens])
        self.tokens += tokens
        for _, data in tokens:
            self.data += data
            self._ends.append(self.base + len(self.data))
        for n_back, row in enumerate(rows[::-1]):
            self._following[len(self) - n_back] = NextTokens.of(row)
        for n_tokens, (_, data) in enumerate(tokens, n_before):
            if not data:
                self._following.pop(n_tokens, None)
        for n_tokens in sorted(self._following)[:-_N_NODES]:
            del self._following[n_tokens]

    def cut(self, n_keep: int) -> list[ReadToken]:
        """Keep the first `n_keep` tokens; return the kept tokens that must be decoded again.

        There are such tokens if the memory cannot be cut back to `n_keep` tokens, but only to fewer.
        """
        wanted = self.tokens[:n_keep]
        self.cache.keep(n_keep)
        self._shorten()
        return wanted[len(self) :]

    def restart(self, base: int) -> None:
        """Drop everything; the next decoded token is at offset `base`."""
        self.cache.keep(0)
        self.base = base
        self._shorten()

    def copy_from(self, source: "DecodedText", n_tokens: int) -> None:
        """Copy the first tokens of `source`, whose memory was copied to this slot."""
        if n_tokens:
            self.cache.add(source.cache.tokens[:n_tokens], can_roll_back=False)
        self.base = source.base
        self.tokens = source.tokens[:n_tokens]
        self.data = source.data[: source.end_of(n_tokens) - self.base]
        self._ends = source._ends[:n_tokens]  # noqa: SLF001 - of the same class
        self._following = {
            n: each
            for n, each in source._following.items()  # noqa: SLF001 - of the same class
            if n <= n_tokens
        }

    def check_integrity(self) -> None:
        assert self.cache.tokens == [token for token, _ in self.tokens]
        assert len(self.tokens) == len(self)
        assert len(self.data) == self.end_of(len(self)) - self.base
        assert all(n <= len(self) for n in self._following)

    def _shorten(self) -> None:
        n_tokens = len(self.cache)
        del self.tokens[n_tokens:]
        del self._ends[n_tokens:]
        del self.data[self.end_of(n_tokens) - self.base :]
        self._following = {n: each for n, each in self._following.items() if n <= n_tokens}
