"""Texts in host memory that slots have held: they can go on from there, in any slot.

Attention reads all cells of a pool, also those of idle slots, unless a kernel skips them. So what idle slots
hold is moved here while others run (docs/performance.md), and so is what a slot would lose to another text.
llama-server does the same (`--cache-ram`, `--cache-idle-slots`).

Where ranges of a slot can be read and written, texts are moved in parts, so that nobody waits for a long one;
a text that goes on gets further parts. Elsewhere it is stored as a whole, in one, with its checkpoints.

With `--cache-disk` texts are also on disk, and some only there: then whoever reads files brings them back.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from shared.cache_edits import CacheEdit, Forget, Restore, Snapshot, Store
from shared.saved_text import SavedText
from shared.slot_cache import SlotCache, StoredText, TextPlace, common_prefix_length, least_useful

MIN_TOKENS = 32
"""Fewer are decoded again as quickly."""
_MOST_TEXTS = 8192
"""A large memory would hold more short ones, but their lists of tokens take memory, too."""
_MOST_NEIGHBOURS = 16
"""How many texts before and after one in the order of texts are looked at for a checkpoint of it."""
UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class PromptCacheSize:
    """`n_bytes` for all texts; of a token, and of a state: every text has one, every checkpoint is one.

    n_part: tokens in a part, at most; 0: texts are stored as a whole. n_least_saved: fewer tokens are not
    written to disk, nor read from there.
    """

    n_bytes: int = 0
    token_bytes: int = 0
    state_bytes: int = 0
    n_part: int = 0
    n_least_saved: int = 256

    def of(self, n_tokens: int, n_checkpoints: int = 0) -> int:
        """Bytes of a text."""
        return self.token_bytes * n_tokens + self.state_bytes * (1 + n_checkpoints)

    def holds(self, n_bytes: int) -> bool:
        """Whether there is a cache, and room in it for `n_bytes`."""
        return 0 < self.n_bytes >= n_bytes


NO_PROMPT_CACHE = PromptCacheSize()


class PromptCache:
    """The text that was used least recently gives way. No text is the beginning of another of its owner's."""

    def __init__(self, size: PromptCacheSize, keys: Iterator[int]) -> None:
        """keys: for snapshots, in common with checkpoints of slots."""
        self._size = size
        self._keys = keys
        self._texts: dict[StoredText, None] = {}  # the least recently used first
        self._sorted: list[StoredText] = []  # by their tokens: the nearest have the longest common beginning
        self._wanted: list[StoredText] = []
        self._used: set[StoredText] = set()
        self.n_bytes = 0
        """The size of all texts in host memory."""

    @property
    def texts(self) -> list[StoredText]:
        """The least recently used first."""
        return list(self._texts)

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
        self, cache: SlotCache, n_keep: int = 0, n_most: int = UNLIMITED, held: Collection[StoredText] = ()
    ) -> tuple[list[CacheEdit], int] | None:
        """What stores the text of a slot, up to `n_most` tokens of it, and how many are then left to store.

        None: it cannot be stored; it is too long, or must be cut back to a checkpoint first. The slot is to
        keep the first `n_keep` tokens. Texts that are its beginning go on as it, or are dropped. Nothing is
        stored if a text goes on from it. held: texts of which parts must not give way.
        """
        n_part, tokens = self._size.n_part, cache.tokens
        n_bytes = self._size.of(len(tokens), len(cache.checkpoints))
        held = held if n_part else ()  # whole ones are loaded in this step, and forgotten after that
        if not self._size.holds(n_bytes + sum(map(self._bytes_of, held))) or not cache.can_store:
            return None
        edits = cache.take_edits()
        if stored := self._stored(tokens, cache.owner):
            self.touch(stored)
            return edits, 0
        beginning = self._beginning_of(tokens, cache.owner)
        text = beginning if beginning and n_part and beginning.place is TextPlace.MEMORY else StoredText()
        if beginning is text:
            self._remove(text)
        elif beginning:  # its files are replaced by those of this one
            text.saved = beginning.saved
            edits += [Forget(part.key) for part in beginning.parts if beginning.place is TextPlace.MEMORY]
            self._remove(beginning)
        text.owner = cache.owner
        known = beginning.checkpoints if beginning and beginning.place is TextPlace.MEMORY else {}
        start, n_left = len(text.tokens), len(tokens) - len(text.tokens)
        # Whole parts, but for the last one: small ones take longer. They end at multiples.
        end = len(tokens) if n_left <= n_most else max(start, (start + n_most) // n_part * n_part)
        n_checkpoints = max(len(known), len(cache.checkpoints))
        edits += self._make_room(self._size.of(end, n_checkpoints), held)
        at = start
        while at < end:
            after = min(end, at + n_part - at % n_part) if n_part else end
            part = Snapshot("text", next(self._keys), after, at)
            text.parts.append(part)
            edits.append(Store(cache.index, part))
            at = after
        text.tokens += tokens[start:end]
        text.n_prefill, checkpoints = cache.n_prefill, known | cache.hand_over(n_keep)
        forgotten = [each for n, each in known.items() if checkpoints[n] is not each]
        while len(checkpoints) > n_checkpoints:
            forgotten.append(checkpoints.pop(least_useful(checkpoints, cache.cuts)))
        edits += [Forget(each.key) for each in forgotten]
        text.checkpoints = checkpoints
        if end:
            self._add(text)
            self._used.add(text)
        return edits, len(tokens) - end

    def load(
        self, text: StoredText, cache: SlotCache, n_keep: int, n_most: int = UNLIMITED
    ) -> list[CacheEdit]:
        """What gives a slot the next parts of `text`, after those that it has; one at least.

        No more than the first `n_keep` tokens, and about `n_most` of them. A whole text may just have been
        dropped. Where memory cannot be trimmed, the slot gets its checkpoints with all of it, and `text` is
        dropped.
        """
        is_stored = text in self._texts
        self.touch(text)
        edits: list[CacheEdit] = []
        n_before = len(cache)
        for part in text.parts:
            if part.end <= len(cache):
                continue
            if len(cache) >= n_keep or (edits and part.end - n_before > n_most):
                break
            n_loaded = min(part.end, n_keep)
            cache.add(text.tokens[len(cache) : n_loaded], can_roll_back=False)
            edits.append(Restore(cache.index, part, n_loaded if cache.traits.can_trim else part.end))
        if cache.traits.can_trim:
            return edits
        if n_keep < len(text.tokens):
            return [*edits, Restore(cache.index, text.checkpoints[n_keep], n_keep)]
        if is_stored:
            cache.checkpoints = dict(text.checkpoints)
            edits += [Forget(part.key) for part in text.parts]
            self._leave_memory(text)
        return edits

    def touch(self, text: StoredText) -> None:
        """It was used just now."""
        if text in self._texts:
            del self._texts[text]
            self._texts[text] = None
            self._used.add(text)

    def pop_used(self) -> list[StoredText]:
        """Texts that were stored or used since the last call, the least recently used first."""
        used = [text for text in self._texts if text in self._used]
        self._used.clear()
        return used

    def drop(self, text: StoredText) -> list[CacheEdit]:
        """What forgets `text`."""
        self._remove(text)
        return [Forget(key) for key in text.keys]

    def holding(self, tokens: list[int], owner: str | None) -> StoredText | None:
        """The text of `owner` that is `tokens`, or goes on from them."""
        for text in self._sorted[self._find(tokens) :]:
            if text.tokens[: len(tokens)] != tokens:
                break
            if text.owner == owner:
                return text
        return None

    def expect(
        self, saved: SavedText, held: Collection[StoredText] = ()
    ) -> tuple[StoredText, list[CacheEdit]]:
        """A text that the caller reads into host memory, and what makes room there; `arrived` has to follow.

        It has no file in `--cache-disk`.
        """
        edits = self._make_room(self._size.of(len(saved.tokens), saved.n_checkpoints), held)
        text = StoredText(
            list(saved.tokens), saved.n_prefill, owner=saved.owner, saved=saved, place=TextPlace.COMING
        )
        text.describe_saved(self._keys)
        text.saved = None
        self._add(text)
        return text, edits

    def adopt(self, saved: SavedText) -> None:
        """A text is on disk; it becomes the one that was used last, and replaces an earlier state of it."""
        earlier = [text for text in self._texts if text.saved and text.saved.name == saved.name]
        if any(text.place is not TextPlace.DISK for text in earlier):
            return
        for text in earlier:
            self._remove(text)
        if len(self._texts) < _MOST_TEXTS:
            text = StoredText(
                list(saved.tokens), saved.n_prefill, owner=saved.owner, saved=saved, place=TextPlace.DISK
            )
            text.describe_saved(itertools.repeat(0))
            self._add(text)

    def unsaved(self, but: Collection[StoredText] = ()) -> StoredText | None:
        """The text that was used last of those that are to be written to disk; but: those that are not."""
        for text in reversed(self._texts):
            is_worth_it = text.owner is not None and len(text.tokens) >= self._size.n_least_saved
            if is_worth_it and text.place is TextPlace.MEMORY and not text.is_saved and text not in but:
                return text
        return None

    def mark_saved(self, text: StoredText, saved: SavedText | None) -> None:
        """`text` was written as `saved`; None: nothing of it is on disk."""
        text.saved = saved
        for each in self._texts:  # one that goes on from it, or from an earlier state of it
            if saved and each.saved and each.saved.name == saved.name:
                each.saved = saved

    def lose(self, names: Collection[str]) -> list[StoredText]:
        """Texts of these names are not on disk any more: those that were only there are dropped.

        Returns those of the others that were there as a whole, and will be `unsaved`.
        """
        lost = [text for text in self._texts if text.saved and text.saved.name in names]
        for text in lost:
            if text.place is TextPlace.DISK:
                self._remove(text)
        whole = [text for text in lost if text.is_saved and text in self._texts]
        for text in lost:
            text.saved = None
        return whole

    def may_fetch(self, text: StoredText, held: Collection[StoredText] = ()) -> bool:
        """Whether there can be room in host memory for a text that is on disk, beside those that stay."""
        return self.has_place(len(text.tokens), len(text.checkpoints), held)

    def has_place(self, n_tokens: int, n_checkpoints: int, held: Collection[StoredText] = ()) -> bool:
        """Whether there can be room in host memory for such a text, beside those that stay."""
        n_bytes = self._size.of(n_tokens, n_checkpoints)
        return self._size.holds(n_bytes + sum(map(self._bytes_of, held)))

    def fetch(self, text: StoredText, held: Collection[StoredText] = ()) -> list[CacheEdit]:
        """What makes room for a text that is on disk only: it is `wanted` in host memory."""
        assert text.place is TextPlace.DISK
        edits = self._make_room(self._size.of(len(text.tokens), len(text.checkpoints)), [*held, text])
        text.place = TextPlace.COMING
        text.describe_saved(self._keys)
        self.n_bytes += self._bytes_of(text)
        self._wanted.append(text)
        return edits

    def pop_wanted(self) -> list[StoredText]:
        """Texts that are to be read from disk; `arrived` has to follow for each."""
        wanted, self._wanted = self._wanted, []
        return wanted

    def arrived(self, text: StoredText, *, is_right: bool) -> list[CacheEdit]:
        """It was read, and is what was written, or it is lost: what forgets it then."""
        if not is_right:
            return self.drop(text)
        text.place = TextPlace.MEMORY
        self.touch(text)
        return []

    def _leave_memory(self, text: StoredText) -> None:
        """Its snapshots are forgotten; another stands for it, if it is on disk."""
        self._remove(text)
        if text.saved and text.is_saved:
            self.adopt(text.saved)

    def _make_room(self, n_bytes: int, held: Collection[StoredText]) -> list[CacheEdit]:
        """What forgets texts until there is room for one of `n_bytes`."""
        edits: list[CacheEdit] = []
        for text in self.texts:
            if len(self._texts) < _MOST_TEXTS and self._size.holds(self.n_bytes + n_bytes):
                break
            if text in held or text.place is TextPlace.COMING:
                continue
            if len(self._texts) >= _MOST_TEXTS:
                edits += self.drop(text)
            elif text.place is TextPlace.MEMORY:
                edits += [Forget(key) for key in text.keys]
                self._leave_memory(text)
        return edits

    def _stored(self, tokens: list[int], owner: str | None) -> StoredText | None:
        """A text of `owner` that is `tokens`, or goes on from them; without owner, any in host memory."""
        for at in range(self._find(tokens), len(self._sorted)):
            text = self._sorted[at]
            if text.tokens[: len(tokens)] != tokens:
                break
            if text.owner == owner or (owner is None and text.place is TextPlace.MEMORY):
                return text
        return None

    def _beginning_of(self, tokens: list[int], owner: str | None) -> StoredText | None:
        """The longest text with which `tokens` begin, that is of `owner` or nobody, and not on its way.

        Between the two are others that begin like it.
        """
        n = len(tokens)
        at = bisect_right(self._sorted, tokens, key=_tokens)
        while n and at:
            text = self._sorted[at - 1]
            n = common_prefix_length(text.tokens, tokens[:n])
            if n < len(text.tokens):
                at = bisect_right(self._sorted, tokens[:n], key=_tokens)
            elif text.place is not TextPlace.COMING and text.owner in {owner, None}:
                return text
            else:
                at -= 1
        return None

    def _find(self, tokens: list[int]) -> int:
        return bisect_left(self._sorted, tokens, key=_tokens)

    def _add(self, text: StoredText) -> None:
        self._sorted.insert(self._find(text.tokens), text)
        self._texts[text] = None
        self.n_bytes += self._bytes_of(text)

    def _remove(self, text: StoredText) -> None:
        at = self._find(text.tokens)
        while self._sorted[at] is not text:  # parts of two texts may be alike
            at += 1
        del self._sorted[at]
        del self._texts[text]
        self._used.discard(text)
        self.n_bytes -= self._bytes_of(text)

    def _bytes_of(self, text: StoredText) -> int:
        return 0 if text.place is TextPlace.DISK else self._size.of(len(text.tokens), len(text.checkpoints))


def _tokens(text: StoredText) -> list[int]:
    return text.tokens
