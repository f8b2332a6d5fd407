"""Texts in host memory that slots have held: they can go on from there, in any slot.

Attention reads all cells of a pool, also those of idle slots, unless a kernel skips them. So what idle slots
hold is moved here while others run (docs/performance.md), and so is what a slot would lose to another text.
llama-server does the same (`--cache-ram`, `--cache-idle-slots`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shared.cache_edits import CacheEdit, ForgetState, LoadState, LoadText, StoreText
from shared.slot_cache import SlotCache

MIN_TOKENS = 32
"""Fewer are decoded again as quickly."""


@dataclass(frozen=True, slots=True)
class PromptCacheSize:
    """`n_bytes` for all texts; of a token, and of a state: every text has one, every checkpoint is one."""

    n_bytes: int = 0
    token_bytes: int = 0
    state_bytes: int = 0

    def of(self, n_tokens: int, n_checkpoints: int = 0) -> int:
        """Bytes of a text."""
        return self.token_bytes * n_tokens + self.state_bytes * (1 + n_checkpoints)

    def holds(self, n_bytes: int) -> bool:
        """Whether there is room for so many bytes, and a cache at all."""
        return 0 < self.n_bytes >= n_bytes


NO_PROMPT_CACHE = PromptCacheSize()


@dataclass(frozen=True, slots=True)
class StoredText:
    """A text and its key. n_prefill: the first of its tokens, which were decoded as a prompt.

    checkpoints: as in `SlotCache`.
    """

    key: int
    tokens: list[int]
    n_prefill: int = 0
    checkpoints: dict[int, int] = field(default_factory=dict)

    def reachable(self, n_keep: int, *, can_trim: bool) -> int:
        """The most tokens up to `n_keep` that a slot can get; can_trim: it can be cut back to any length."""
        if can_trim:
            return min(n_keep, len(self.tokens))
        return max((n for n in (len(self.tokens), *self.checkpoints) if n <= n_keep), default=0)


class PromptCache:
    """The text that was used least recently gives way."""

    def __init__(self, size: PromptCacheSize, keys: Iterator[int]) -> None:
        """keys: for what is stored, in common with checkpoints of slots."""
        self._size = size
        self._keys = keys
        self._texts: list[StoredText] = []  # the least recently used first

    @property
    def n_bytes(self) -> int:
        """Of all texts."""
        return sum(self._size.of(len(text.tokens), len(text.checkpoints)) for text in self._texts)

    @property
    def texts(self) -> Sequence[StoredText]:
        """The least recently used first."""
        return self._texts

    def store(self, cache: SlotCache, n_prefill: int = 0, n_keep: int = 0) -> list[CacheEdit] | None:
        """What stores the text of a slot, which is to keep the first `n_keep` tokens; None: that cannot be.

        It is too long, or must be cut back to a checkpoint first. Texts that are its beginning are dropped.
        Nothing is stored if one goes on from it.
        """
        tokens = cache.tokens
        n_bytes = self._size.of(len(tokens), len(cache.checkpoints))
        if not self._size.holds(n_bytes) or not cache.can_store:
            return None
        edits = cache.take_edits()
        if any(text.tokens[: len(tokens)] == tokens for text in self._texts):
            return edits
        for text in [text for text in self._texts if tokens[: len(text.tokens)] == text.tokens]:
            edits += self.drop(text)
        while not self._size.holds(self.n_bytes + n_bytes):
            edits += self.drop(self._texts[0])
        text = StoredText(next(self._keys), list(tokens), n_prefill, cache.hand_over(n_keep))
        self._texts.append(text)
        return [*edits, StoreText(cache.index, text.key)]

    def load(self, text: StoredText, cache: SlotCache, n_keep: int) -> list[CacheEdit]:
        """What gives an empty slot the first `n_keep` tokens of `text`, which may just have been dropped.

        With all of its tokens the slot gets its checkpoints, if it needs any; then `text` is dropped.
        """
        is_stored = text in self._texts
        if cache.traits.can_trim or n_keep < len(text.tokens):
            if is_stored:
                self._texts.remove(text)
                self._texts.append(text)
            cache.load(text.tokens[:n_keep], {})
            return self._load_beginning(text, cache, n_keep)
        cache.load(text.tokens, dict(text.checkpoints) if is_stored else {})
        edits: list[CacheEdit] = [LoadText(cache.index, text.key, n_keep)]
        if is_stored:
            self._texts.remove(text)
            edits.append(ForgetState(text.key))
        return edits

    def _load_beginning(self, text: StoredText, cache: SlotCache, n_keep: int) -> list[CacheEdit]:
        if cache.traits.can_trim:
            return [LoadText(cache.index, text.key, n_keep)]
        loaded = LoadText(cache.index, text.key, len(text.tokens))
        return [loaded, LoadState(cache.index, text.checkpoints[n_keep])]

    def drop(self, text: StoredText) -> list[CacheEdit]:
        """What forgets `text`."""
        self._texts.remove(text)
        return [ForgetState(key) for key in (text.key, *text.checkpoints.values())]
