"""Texts in host memory that slots have held: they can go on from there, in any slot.

Attention reads all cells of a pool, also those of idle slots, unless a kernel skips them. So what idle slots
hold is moved here while others run (docs/performance.md), and so is what a slot would lose to another text.
llama-server does the same (`--cache-ram`, `--cache-idle-slots`).

Where ranges of a slot can be read and written, texts are moved in parts, so that nobody waits for a long one;
a text that goes on gets further parts. Elsewhere it is stored as a whole, with its checkpoints.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from shared.cache_edits import CacheEdit, ForgetState, LoadPart, LoadState, LoadText, StorePart, StoreText
from shared.slot_cache import SlotCache, common_prefix_length

MIN_TOKENS = 32
"""Fewer are decoded again as quickly."""
_MOST_TEXTS = 8192
"""Of short ones, a large memory would hold more: their lists of tokens take memory, too."""
_MOST_NEIGHBOURS = 16
"""How many texts before and after one in the order of texts are looked at for a checkpoint of it."""
UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class PromptCacheSize:
    """`n_bytes` for all texts; of a token, and of a state: every text has one, every checkpoint is one.

    n_part: tokens in a part, at most; 0: texts are stored as a whole.
    """

    n_bytes: int = 0
    token_bytes: int = 0
    state_bytes: int = 0
    n_part: int = 0

    def of(self, n_tokens: int, n_checkpoints: int = 0) -> int:
        """Bytes of a text."""
        return self.token_bytes * n_tokens + self.state_bytes * (1 + n_checkpoints)

    def holds(self, n_bytes: int) -> bool:
        """Whether there is room for so many bytes, and a cache at all."""
        return 0 < self.n_bytes >= n_bytes


NO_PROMPT_CACHE = PromptCacheSize()


class StoredPart(NamedTuple):
    """Tokens up to `end` of a text, after those of the part before."""

    key: int
    end: int


@dataclass(slots=True)
class StoredText:
    """A text and its key. n_prefill: the first of its tokens, which were decoded as a prompt.

    checkpoints: as in `SlotCache`. parts: what it was stored in; none if it was stored as a whole.
    """

    key: int
    tokens: list[int]
    n_prefill: int = 0
    checkpoints: dict[int, int] = field(default_factory=dict)
    parts: list[StoredPart] = field(default_factory=list)

    def reachable(self, n_keep: int, *, can_trim: bool) -> int:
        """The most tokens up to `n_keep` that a slot can get; can_trim: it can be cut back to any length."""
        if can_trim:
            return min(n_keep, len(self.tokens))
        return max((n for n in (len(self.tokens), *self.checkpoints) if n <= n_keep), default=0)

    def n_cells(self, n_keep: int) -> int:
        """Cells that are taken while a slot gets the first `n_keep` tokens: parts are cut once loaded."""
        return next((part.end for part in self.parts if part.end >= n_keep), len(self.tokens))

    @property
    def keys(self) -> Iterable[int]:
        """Of all that is stored of it."""
        return (*([part.key for part in self.parts] or [self.key]), *self.checkpoints.values())


class PromptCache:
    """The text that was used least recently gives way. No whole text is the beginning of another."""

    def __init__(self, size: PromptCacheSize, keys: Iterator[int]) -> None:
        """keys: for what is stored, in common with checkpoints of slots."""
        self._size = size
        self._keys = keys
        self._texts: dict[int, StoredText] = {}  # the least recently used first
        self._sorted: list[StoredText] = []  # by their tokens: the nearest have the longest common beginning
        self.n_bytes = 0
        """Of all texts."""

    @property
    def texts(self) -> list[StoredText]:
        """The least recently used first."""
        return list(self._texts.values())

    def best(self, tokens: list[int], serves: Callable[[StoredText], int]) -> tuple[int, StoredText | None]:
        """The text of which most serves `tokens`, and how much; `serves`: at most the common beginning."""
        at = self._find(tokens)
        before, after = (
            self._sorted[max(0, at - _MOST_NEIGHBOURS) : at],
            self._sorted[at : at + _MOST_NEIGHBOURS],
        )
        n_best, best = 0, None
        for neighbours in (reversed(before), after):
            for text in neighbours:
                if common_prefix_length(text.tokens, tokens) <= n_best:
                    break
                if (n := serves(text)) > n_best:
                    n_best, best = n, text
        return n_best, best

    def store(
        self,
        cache: SlotCache,
        n_prefill: int = 0,
        n_keep: int = 0,
        n_most: int = UNLIMITED,
        held: Collection[int] = (),
    ) -> tuple[list[CacheEdit], int] | None:
        """What stores the text of a slot, up to `n_most` tokens of it, and how many are then left to store.

        None: it cannot be stored; it is too long, or must be cut back to a checkpoint first. The slot is to
        keep the first `n_keep` tokens. Texts that are its beginning go on as it, or are dropped. Nothing is
        stored if a text goes on from it. held: keys of texts that must not give way.
        """
        tokens = cache.tokens
        n_bytes = self._size.of(len(tokens), len(cache.checkpoints))
        n_held = sum(self._bytes_of(self._texts[key]) for key in held)
        if not self._size.holds(n_bytes + n_held) or not cache.can_store:
            return None
        edits = cache.take_edits()
        at = self._find(tokens)
        if at < len(self._sorted) and self._sorted[at].tokens[: len(tokens)] == tokens:
            return edits, 0
        beginning = self._beginning_of(tokens)
        if self._size.n_part:
            return self._store_parts(cache, beginning, edits, n_prefill, n_most, held)
        if beginning:
            edits += self.drop(beginning)
        edits += self._make_room(n_bytes, held)
        text = StoredText(next(self._keys), list(tokens), n_prefill, cache.hand_over(n_keep))
        self._add(text)
        return [*edits, StoreText(cache.index, text.key)], 0

    def _store_parts(  # noqa: PLR0917 - all that `store` has found out
        self,
        cache: SlotCache,
        text: StoredText | None,
        edits: list[CacheEdit],
        n_prefill: int,
        n_most: int,
        held: Collection[int],
    ) -> tuple[list[CacheEdit], int]:
        text = text or StoredText(next(self._keys), [])
        n_stored, n_left = len(text.tokens), len(cache.tokens) - len(text.tokens)
        # Whole parts, but for the last one: small ones take longer.
        end = n_stored + (
            n_left if n_left <= n_most else max(0, n_most) // self._size.n_part * self._size.n_part
        )
        if n_stored:
            self._remove(text)
        edits += self._make_room(self._size.of(end), held)
        for start in range(n_stored, end, self._size.n_part):
            part = StoredPart(next(self._keys), min(end, start + self._size.n_part))
            text.parts.append(part)
            edits.append(StorePart(cache.index, part.key, start, part.end))
        text.tokens += cache.tokens[n_stored:end]
        text.n_prefill = n_prefill
        if end:
            self._add(text)
        return edits, len(cache.tokens) - end

    def load(self, text: StoredText, cache: SlotCache, n_keep: int) -> list[CacheEdit]:
        """What gives an empty slot the first `n_keep` tokens of `text`, which may just have been dropped.

        With all of its tokens the slot gets its checkpoints, if it needs any; then `text` is dropped.
        """
        is_stored = text.key in self._texts
        if cache.traits.can_trim or n_keep < len(text.tokens):
            self.touch(text)
            cache.load(text.tokens[:n_keep], {})
            return self._load_beginning(text, cache, n_keep)
        cache.load(text.tokens, dict(text.checkpoints) if is_stored else {})
        edits: list[CacheEdit] = [LoadText(cache.index, text.key, n_keep)]
        if is_stored:
            self._remove(text)
            edits.append(ForgetState(text.key))
        return edits

    def _load_beginning(self, text: StoredText, cache: SlotCache, n_keep: int) -> list[CacheEdit]:
        if cache.traits.can_trim:
            return [LoadText(cache.index, text.key, n_keep)]
        loaded = LoadText(cache.index, text.key, len(text.tokens))
        return [loaded, LoadState(cache.index, text.checkpoints[n_keep])]

    def load_parts(
        self, text: StoredText, cache: SlotCache, n_keep: int, n_most: int = UNLIMITED
    ) -> list[CacheEdit]:
        """What gives a slot, which has a part or some of `text`, the next ones; one at least.

        No more than the first `n_keep` tokens, and about `n_most` of them.
        """
        self.touch(text)
        edits: list[CacheEdit] = []
        n_before = len(cache)
        for part in text.parts:
            if part.end <= len(cache):
                continue
            if len(cache) >= n_keep or (edits and part.end - n_before > n_most):
                break
            n_loaded = min(part.end, n_keep)
            cache.extend(text.tokens[len(cache) : n_loaded])
            edits.append(LoadPart(cache.index, part.key, n_loaded))
        return edits

    def touch(self, text: StoredText) -> None:
        """It was used just now."""
        if self._texts.pop(text.key, None):
            self._texts[text.key] = text

    def drop(self, text: StoredText) -> list[CacheEdit]:
        """What forgets `text`."""
        self._remove(text)
        return [ForgetState(key) for key in text.keys]

    def _make_room(self, n_bytes: int, held: Collection[int]) -> list[CacheEdit]:
        """What forgets texts until there is room for one of `n_bytes`."""
        edits: list[CacheEdit] = []
        for text in list(self._texts.values()):
            if len(self._texts) < _MOST_TEXTS and self._size.holds(self.n_bytes + n_bytes):
                break
            if text.key not in held:
                edits += self.drop(text)
        return edits

    def _beginning_of(self, tokens: list[int]) -> StoredText | None:
        """The longest text with which `tokens` begin: between the two are others that begin like it."""
        n = len(tokens)
        while n and (at := bisect_right(self._sorted, tokens[:n], key=_tokens)):
            text = self._sorted[at - 1]
            n = common_prefix_length(text.tokens, tokens[:n])
            if n == len(text.tokens):
                return text
        return None

    def _find(self, tokens: list[int]) -> int:
        return bisect_left(self._sorted, tokens, key=_tokens)

    def _add(self, text: StoredText) -> None:
        self._sorted.insert(self._find(text.tokens), text)
        self._texts[text.key] = text
        self.n_bytes += self._bytes_of(text)

    def _remove(self, text: StoredText) -> None:
        at = self._find(text.tokens)
        while self._sorted[at] is not text:  # parts of two texts may be alike
            at += 1
        del self._sorted[at]
        del self._texts[text.key]
        self.n_bytes -= self._bytes_of(text)

    def _bytes_of(self, text: StoredText) -> int:
        return self._size.of(len(text.tokens), len(text.checkpoints))


def _tokens(text: StoredText) -> list[int]:
    return text.tokens


def n_moved(edits: Iterable[CacheEdit]) -> int:
    """How many tokens `edits` store in parts."""
    return sum(edit.end - edit.start for edit in edits if isinstance(edit, StorePart))
