"""Texts in host memory that slots have held: they can go on from there, in any slot.

Attention reads all cells of a pool, also those of idle slots, unless a kernel skips them. So what idle slots
hold is moved here while others run (docs/performance.md), and so is what a slot would lose to another text.
llama-server does the same (`--cache-ram`, `--cache-idle-slots`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shared.cache_edits import CacheEdit, ForgetState, LoadText, StoreText
from shared.slot_cache import SlotCache

MIN_TOKENS = 32
"""Fewer are decoded again as quickly."""


@dataclass(frozen=True, slots=True)
class StoredText:
    """A text and its key. n_prefill: the first of its tokens, which were decoded as a prompt."""

    key: int
    tokens: list[int]
    n_prefill: int = 0


class PromptCache:
    """At most `n_most` tokens, in as many texts; the one that was used least recently gives way."""

    def __init__(self, n_most: int, keys: Iterator[int]) -> None:
        """keys: for what is stored, in common with checkpoints."""
        self._n_most = n_most
        self._keys = keys
        self._texts: list[StoredText] = []  # the least recently used first

    def __len__(self) -> int:
        """Number of tokens of all texts."""
        return sum(len(text.tokens) for text in self._texts)

    @property
    def texts(self) -> Sequence[StoredText]:
        """The least recently used first."""
        return self._texts

    def store(self, cache: SlotCache, n_prefill: int = 0) -> list[CacheEdit] | None:
        """What stores the text of a slot, which must hold nothing else; None if it is too long.

        Texts that are its beginning are dropped. Nothing is stored if one goes on from it.
        """
        tokens = cache.tokens
        if len(tokens) > self._n_most:
            return None
        edits = cache.take_edits()
        if any(text.tokens[: len(tokens)] == tokens for text in self._texts):
            return edits
        obsolete = [text for text in self._texts if tokens[: len(text.tokens)] == text.tokens]
        for text in obsolete:
            edits += self.drop(text)
        while len(self) + len(tokens) > self._n_most:
            edits += self.drop(self._texts[0])
        text = StoredText(next(self._keys), list(tokens), n_prefill)
        self._texts.append(text)
        return [*edits, StoreText(cache.index, text.key)]

    def load(self, text: StoredText, cache: SlotCache, n_keep: int) -> list[CacheEdit]:
        """What gives the first `n_keep` tokens of `text` to an empty slot; it may just have been dropped."""
        if text in self._texts:
            self._texts.remove(text)
            self._texts.append(text)
        cache.load(text.tokens[:n_keep])
        return [LoadText(cache.index, text.key, n_keep)]

    def drop(self, text: StoredText) -> list[CacheEdit]:
        """What forgets `text`."""
        self._texts.remove(text)
        return [ForgetState(text.key)]
