"""All texts in slots, in host memory and on disk: decides which text moves, and in which step.

Attention reads all cells of a pool, even the cells of idle slots, unless a kernel skips them. So texts of
idle slots move to host memory while other slots run (docs/design/texts.md). A text also moves to host memory
before its slot gets another text. llama-server does the same (`--cache-ram`, `--cache-idle-slots`).

If ranges of a slot can be read and written, texts are moved in parts, so that no step waits for a long text.
A text that grows gets further parts. Otherwise a text is stored as a whole, in one step, with its
checkpoints.

With `--cache-disk` texts are also on disk, some only there. The caller, which reads files, brings texts back
from disk.

The owner of the store decides which sequence has which slot: the lead's engine, or a drafter.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection
from dataclasses import dataclass
from operator import attrgetter

from shared.cache_edits import CacheEdit, Copy, Forget, Restore, Snapshot, Store, loads_last
from shared.llama.memory_traits import MemoryTraits
from shared.slot_cache import SavedText, SlotCache, StoredText, common_prefix_length, least_useful

MIN_TOKENS = 32
"""The fewest tokens worth storing; fewer are decoded again as quickly."""
_MAX_TEXTS = 8192
"""The maximum number of texts. A large memory could hold more, but their lists of tokens take memory, too."""
_MAX_NEIGHBORS = 16
"""The number of neighbors in the order of texts, on each side, that are searched for a usable prefix."""
UNLIMITED = 1 << 62
_tokens = attrgetter("tokens")


@dataclass(frozen=True, slots=True)
class PromptCacheSize:
    """The size of a prompt cache: `n_bytes` for all texts, `token_bytes` per token, `state_bytes` per state.

    Every text has one state, and every checkpoint is another. n_part: the maximum number of tokens in a part;
    0: texts are stored as a whole. n_least_saved: shorter texts are not written to disk or read from it.
    """

    n_bytes: int = 0
    token_bytes: int = 0
    state_bytes: int = 0
    n_part: int = 0
    n_least_saved: int = 256

    def of(self, n_tokens: int, n_checkpoints: int = 0) -> int:
        """Return the bytes of a text of `n_tokens` tokens with `n_checkpoints` checkpoints."""
        return self.token_bytes * n_tokens + self.state_bytes * (1 + n_checkpoints)

    def holds(self, n_bytes: int) -> bool:
        """Return whether there is a cache with room for `n_bytes`."""
        return 0 < self.n_bytes >= n_bytes


NO_PROMPT_CACHE = PromptCacheSize()


class TextStore:
    """Stores and loads texts by edits of the memory, which are applied before the next step (`pop_edits`).

    Storing or loading a text in parts may take several steps. The least recently used text is dropped first.
    No text is a prefix of another text of the same owner.
    """

    def __init__(self, n_slots: int, traits: MemoryTraits, size: PromptCacheSize = NO_PROMPT_CACHE) -> None:
        self.caches = [SlotCache(index, traits) for index in range(n_slots)]
        self.n_bytes = 0
        """The size of all texts in host memory."""
        self.n_step = size.n_part or UNLIMITED
        """The number of tokens that may move in a step while sequences run; at least one part."""
        self._traits, self._size = traits, size
        self._keys = itertools.count(1)  # of snapshots in host memory
        self._texts: dict[StoredText, None] = {}  # the least recently used first
        self._sorted: list[StoredText] = []  # by tokens: neighbors have the longest common prefixes
        self._wanted: list[StoredText] = []  # on disk, to be read
        self._n_movable = UNLIMITED  # tokens that may still be stored and loaded before the next step
        self._filled: set[int] = set()  # slots that get their text only when `_edits` are applied
        self._edits: list[CacheEdit] = []  # without the edits that caches collect themselves
        self._ordered: list[CacheEdit] = []  # to be applied before `_edits`

    # Steps

    @property
    def n_cells(self) -> int:
        """The number of cells valid or reserved for loading; shared cells count once for each slot."""
        return sum([cache.n_cells for cache in self.caches])

    @property
    def has_moved(self) -> bool:
        """True if parts were stored or loaded in this step, so that there may be more to move in the next
        step.
        """
        return self._n_movable < self.n_step < UNLIMITED

    def begin_step(self, *, alone: bool = False) -> None:
        """Continue loading. alone: no sequences run, so any number of tokens may move, not only `n_step`."""
        self._n_movable = UNLIMITED if alone else self.n_step
        for cache in self.caches:
            if cache.loading:
                self._load(cache, cache.loading)

    def limit_moves(self) -> None:
        """Move at most `n_step` tokens in this step from now on."""
        self._n_movable = min(self._n_movable, self.n_step)

    def finish_loads(self) -> None:
        """Order the edits so that texts loaded in this step can be shared."""
        if self._filled:
            self._order_edits()

    def pop_edits(self, *, decodes: bool = True) -> list[CacheEdit]:
        """Return the edits that make every native cache match its record; apply them before anything else.

        decodes: a decode follows.
        """
        self._order_edits()
        if decodes:
            for cache in self.caches:
                cache.end_rollback()
        edits, self._ordered = self._ordered, []
        return edits

    def _order_edits(self) -> None:
        """Order all edits requested so far before the edits requested from now on."""
        edits, self._edits = self._edits, []
        self._filled.clear()
        for cache in self.caches:
            edits += cache.take_edits()
        if edits:
            self._ordered += loads_last(edits)

    # Slots

    def checkpoint(self, cache: SlotCache, n_max: int) -> None:
        """Store the state of a slot in host memory; the slot may have at most `n_max` states there."""
        cache.store(next(self._keys), n_max)

    def empty(self, cache: SlotCache) -> None:
        """Drop the contents of a slot, before it gets other contents."""
        cache.keep(0)
        self._edits += cache.take_edits()

    def copy(self, source: SlotCache, cache: SlotCache, n_tokens: int) -> None:
        """Give an empty slot the first `n_tokens` of another slot.

        If the memory cannot be trimmed, the other slot must have a state or checkpoint of this length.
        """
        assert n_tokens <= len(source), f"slot {source.index} has fewer than {n_tokens} tokens to share"
        if n_tokens in source.saved:
            self._edits.append(Restore(cache.index, source.saved[n_tokens], n_tokens))
        else:
            self._edits.append(Copy(source.index, cache.index, n_tokens))
            if not self._traits.can_trim:
                self._edits += source.take_stores()
                self._edits.append(Restore(cache.index, source.checkpoints[n_tokens], n_tokens))
                self._filled.add(cache.index)
        cache.add(source.tokens[:n_tokens], can_roll_back=False)

    # From slots to host memory, and back

    def can_store(self, cache: SlotCache) -> bool:
        """Return whether the native cache of a slot holds its text without edits that load."""
        return cache.index not in self._filled and cache.can_store

    def store(self, cache: SlotCache, n_keep: int = 0, n_min: int = MIN_TOKENS) -> int | None:
        """Store the text of a slot, which keeps its first `n_keep` tokens; return the number of tokens left
        to store.

        None: it cannot be stored, because it has fewer than `n_min` tokens, is too long, or must be loaded or
        cut back first. Stored texts that are a prefix of it are extended or dropped. Nothing is stored if the
        text is a prefix of a stored text.
        """
        if len(cache) < n_min or not self.can_store(cache):
            return None
        # Whole texts are loaded in this step, and forgotten after that.
        held = self._held if self._size.n_part else []
        if not self._has_place(self._size.of(len(cache), len(cache.checkpoints)), held):
            return None
        self._edits += cache.take_edits()
        cache.end_rollback()
        if stored := self.holding(cache.tokens, cache.owner, any_owner=cache.owner is None):
            self.touch(stored)
            return 0
        beginning = self._beginning_of(cache.tokens, cache.owner)
        is_new = beginning is None or beginning.place == "disk"
        if is_new and self._n_movable < min(self._size.n_part, len(cache)):
            return len(cache)  # nothing of it moves in this step
        text = self._continued(beginning, cache.owner)
        self._store_more(text, cache, n_keep, held)
        self._add(text)
        text.is_used = True
        return len(cache) - len(text.tokens)

    def _continued(self, beginning: StoredText | None, owner: str | None) -> StoredText:
        """Return the text to extend after `beginning`, which is removed from the store."""
        if beginning is None:
            return StoredText(owner=owner)
        self._remove(beginning)
        if beginning.place == "memory" and self._size.n_part:
            beginning.owner = owner
            return beginning
        text = StoredText(owner=owner, saved=beginning.saved)  # whose files will be replaced
        if beginning.place == "memory":
            self._edits += [Forget(part.key) for part in beginning.parts]
            text.checkpoints = beginning.checkpoints
        return text

    def _store_more(
        self, text: StoredText, cache: SlotCache, n_keep: int, held: Collection[StoredText]
    ) -> None:
        """Add the tokens of a slot that move in this step, and the checkpoints that it does not keep."""
        n_part, start, n_tokens = self._size.n_part, len(text.tokens), len(cache)
        known = text.checkpoints
        n_checkpoints = max(len(known), len(cache.checkpoints))
        # Whole parts, but for the last one: small ones take longer. They end at multiples.
        is_all = n_tokens - start <= self._n_movable
        end = n_tokens if is_all else max(start, (start + self._n_movable) // n_part * n_part)
        self._make_room(self._size.of(end, n_checkpoints), held)
        self._n_movable -= end - start
        at = start
        while at < end:
            after = min(end, at + n_part - at % n_part) if n_part else end
            text.parts.append(Snapshot("text", next(self._keys), after, at))
            self._edits.append(Store(cache.index, text.parts[-1]))
            at = after
        text.tokens += cache.tokens[start:end]
        text.n_prefill = cache.n_prefill
        # More of a text may be on disk than has been stored of it again, and this one may go on otherwise.
        if text.saved and text.saved.tokens[start:end] != text.tokens[start : len(text.saved.tokens)]:
            text.saved = None
        # The slot's own replace those of as many tokens; there are no more than one of both has had.
        text.checkpoints = known | cache.hand_over(n_keep)
        forgotten = [each for n, each in known.items() if text.checkpoints[n] is not each]
        while len(text.checkpoints) > n_checkpoints:
            forgotten.append(text.checkpoints.pop(least_useful(text.checkpoints, cache.cuts)))
        self._edits += [Forget(each.key) for each in forgotten]

    def load(self, cache: SlotCache, text: StoredText, n_tokens: int) -> None:
        """Give an empty slot the first `n_tokens` of a stored text, perhaps over several steps."""
        cache.loading, cache.n_loading = text, n_tokens
        self._load(cache, text)

    def _load(self, cache: SlotCache, text: StoredText) -> None:
        """Give a slot the next parts of `text`; at least one, if any tokens may move.

        A whole text may just have been dropped. If the memory cannot be trimmed and the slot gets all of the
        text, it also gets the checkpoints, and `text` is dropped.
        """
        if self._n_movable <= 0:
            return
        self._filled.add(cache.index)
        is_stored = text in self._texts
        self.touch(text)
        n_before, n_keep = len(cache), cache.n_loading
        for part in text.parts:
            if part.end <= len(cache):
                continue
            if len(cache) >= n_keep or (len(cache) > n_before and part.end - n_before > self._n_movable):
                break
            n_loaded = min(part.end, n_keep)
            cache.add(text.tokens[len(cache) : n_loaded], can_roll_back=False)
            self._edits.append(Restore(cache.index, part, n_loaded if self._traits.can_trim else part.end))
        self._n_movable -= len(cache) - n_before
        if len(cache) == n_keep:
            cache.loading = None
        if self._traits.can_trim:
            return
        if n_keep < len(text.tokens):  # further back than the end, to a state
            self._edits.append(Restore(cache.index, text.checkpoints[n_keep], n_keep))
        elif is_stored:
            cache.checkpoints = dict(text.checkpoints)
            self._edits += [Forget(part.key) for part in text.parts]
            self._leave_memory(text)

    # Looking up texts

    @property
    def texts(self) -> list[StoredText]:
        """The texts in host memory and on disk, least recently used first."""
        return list(self._texts)

    def best(self, tokens: list[int], serves: Callable[[StoredText], int]) -> tuple[int, StoredText | None]:
        """Return (length, text) of the text with the longest usable prefix of `tokens`; (0, None) if there is
        none.

        serves: returns the usable length of a text, at most the length of the common prefix.
        """
        at = self._find(tokens)
        before, after = (
            self._sorted[max(0, at - _MAX_NEIGHBORS) : at],
            self._sorted[at : at + _MAX_NEIGHBORS],
        )
        n_best, best = 0, None
        for neighbors in (reversed(before), after):
            for text in neighbors:
                if common_prefix_length(text.tokens, tokens) <= n_best:
                    break
                if (n := serves(text)) > n_best:
                    n_best, best = n, text
        return n_best, best

    def holding(self, tokens: list[int], owner: str | None, *, any_owner: bool = False) -> StoredText | None:
        """Return the text of `owner` that equals `tokens`, or begins with them; None: there is none.

        any_owner: a text of another owner will do if it is in host memory.
        """
        for at in range(self._find(tokens), len(self._sorted)):
            text = self._sorted[at]
            if text.tokens[: len(tokens)] != tokens:
                break
            if text.owner == owner or (any_owner and text.place == "memory"):
                return text
        return None

    def touch(self, text: StoredText) -> None:
        """Mark a text as used just now."""
        if text in self._texts:
            del self._texts[text]
            self._texts[text] = None
            text.is_used = True

    def pop_used(self) -> list[StoredText]:
        """Return the texts stored or used since the last call, least recently used first."""
        used = [text for text in self._texts if text.is_used]
        for text in used:
            text.is_used = text.is_left_out = False
        return used

    def drop(self, text: StoredText) -> None:
        """Drop a text, unless it is being loaded or read."""
        if text not in self._held:
            self._drop(text)

    # From disk to host memory

    def may_fetch(self, text: StoredText) -> bool:
        """Return whether host memory could hold a text that is on disk, if it held nothing else."""
        return self._has_place(self._size_of(text), ())

    def fetch(self, text: StoredText) -> None:
        """Request that a text on disk is read, over several steps; do nothing while it has no room."""
        if text.place == "disk" and self._expect(text):
            self.n_bytes += self._bytes_of(text)
            self._wanted.append(text)

    def pop_wanted(self) -> list[StoredText]:
        """Return the texts to read from disk; call `arrived` for each."""
        wanted, self._wanted = self._wanted, []
        return wanted

    def expect(self, saved: SavedText) -> StoredText | None:
        """Return a text that the caller reads into host memory; call `arrived` afterwards.

        The text is not in `--cache-disk`. None: there is no room, because other texts occupy it or the text
        is too large.
        """
        text = StoredText.on_disk(saved)
        if not self._expect(text):
            return None
        text.saved = None
        self._add(text)
        return text

    def _expect(self, text: StoredText) -> bool:
        """Make room in host memory for a text on disk; return False if other texts occupy its place."""
        held, n_bytes = self._held, self._size_of(text)
        if not self._has_place(n_bytes, held):
            return False
        self._make_room(n_bytes, [*held, text])
        text.place = "coming"
        text.describe_saved(self._keys)
        return True

    def arrived(self, text: StoredText, *, is_right: bool) -> list[CacheEdit]:
        """Complete the reading of a text; return edits to apply immediately.

        is_right: False if reading failed: the text is dropped, and the edits free its memory.
        """
        if not is_right:
            self._remove(text)
            return [Forget(key) for key in text.keys]
        text.place = "memory"
        self.touch(text)
        return []

    # What is on disk

    def add_saved(self, *found: SavedText) -> None:
        """Add texts found on disk, least recently used first; each replaces its own earlier state."""
        known: dict[str, list[StoredText]] = {}
        for text in self._texts:
            if text.saved:
                known.setdefault(text.saved.name, []).append(text)
        for saved in found:
            earlier = [text for text in known.get(saved.name, ()) if text in self._texts]
            if any(text.place != "disk" for text in earlier):
                continue
            for text in earlier:
                self._remove(text)
            if len(self._texts) >= _MAX_TEXTS:
                self._make_room(0, self._held)
            if len(self._texts) < _MAX_TEXTS:  # else all of them are held
                self._add(StoredText.on_disk(saved))

    def unsaved(self) -> StoredText | None:
        """Return the most recently used text that must be written to disk; None: no text."""
        for text in reversed(self._texts):
            is_worth_it = text.owner is not None and len(text.tokens) >= self._size.n_least_saved
            if is_worth_it and text.place == "memory" and not text.is_saved and not text.is_left_out:
                return text
        return None

    def mark_saved(self, text: StoredText, saved: SavedText | None) -> None:
        """Record that `text` was written as `saved`; None: nothing of it is on disk."""
        text.saved = saved
        for each in self._texts:  # one that goes on from it, or from an earlier state of it
            if saved and each.saved and each.saved.name == saved.name:
                each.saved = saved

    def mark_deleted(self, names: Collection[str]) -> None:
        """Record that the texts with these names were deleted from disk; drop texts that were only there.

        If a text in host memory was completely on disk, it had to give way to other texts on disk. So it is
        not written again until it is used.
        """
        for text in [text for text in self._texts if text.saved and text.saved.name in names]:
            if text.place == "disk":
                self._remove(text)
            text.is_left_out |= text.is_saved
            text.saved = None

    # Freeing memory

    @property
    def _held(self) -> list[StoredText]:
        """The texts that must not be dropped: those being loaded or read."""
        coming = [text for text in self._texts if text.place == "coming"]
        return coming + [cache.loading for cache in self.caches if cache.loading]

    def _has_place(self, n_bytes: int, held: Collection[StoredText]) -> bool:
        """Return whether host memory can hold a text of `n_bytes` beside the `held` ones."""
        return self._size.holds(n_bytes + sum(map(self._bytes_of, held)))

    def _make_room(self, n_bytes: int, held: Collection[StoredText]) -> None:
        """Drop texts from memory until there is room for one of `n_bytes`."""
        for text in self.texts:
            if len(self._texts) < _MAX_TEXTS and self._size.holds(self.n_bytes + n_bytes):
                break
            if text in held or text.place == "coming":
                continue
            if len(self._texts) >= _MAX_TEXTS:
                self._drop(text)
            elif text.place == "memory":
                self._edits += [Forget(key) for key in text.keys]
                self._leave_memory(text)

    def _leave_memory(self, text: StoredText) -> None:
        """Remove a text whose snapshots are forgotten; if the text is on disk, its record on disk takes its
        place.

        The text itself is not changed: a whole text may still have to be loaded in this step.
        """
        self._remove(text)
        if text.saved and text.is_saved:
            self.add_saved(text.saved)

    def _drop(self, text: StoredText) -> None:
        self._remove(text)
        self._edits += [Forget(key) for key in text.keys]

    # The index

    def _beginning_of(self, tokens: list[int], owner: str | None) -> StoredText | None:
        """Return the longest stored prefix of `tokens` that belongs to `owner` or no owner, and is not being
        read.

        In the order of texts, others with the same beginning may lie between it and `tokens`.
        """
        n = len(tokens)
        at = bisect_right(self._sorted, tokens, key=_tokens)
        while n and at:
            text = self._sorted[at - 1]
            n = common_prefix_length(text.tokens, tokens[:n])
            if n < len(text.tokens):
                at = bisect_right(self._sorted, tokens[:n], key=_tokens)
            elif text.place != "coming" and text.owner in {owner, None}:
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
        del self._sorted[self._sorted.index(text, self._find(text.tokens))]  # two texts may have equal tokens
        del self._texts[text]
        self.n_bytes -= self._bytes_of(text)

    def _bytes_of(self, text: StoredText) -> int:
        """Return the bytes that a text has, or will have, in host memory."""
        return 0 if text.place == "disk" else self._size_of(text)

    def _size_of(self, text: StoredText) -> int:
        return self._size.of(len(text.tokens), len(text.checkpoints))
