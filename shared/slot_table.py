"""The slots of a model's memory, with a prompt cache: what moves between them, and in which step.

Who holds which slot is for its owner to say: sequences in the lead's engine, drafts in a drafter.
"""

import itertools

from shared.cache_edits import CacheEdit, Copy, Restore, Store, loads_last
from shared.llama.memory_traits import MemoryTraits
from shared.prompt_cache import MIN_TOKENS, UNLIMITED, PromptCache, PromptCacheSize
from shared.saved_text import SavedText
from shared.slot_cache import Loading, SlotCache, StoredText, TextPlace


class SlotTable:
    """Collects edits of the memory, to be applied before the next step (`pop_edits`).

    Texts that are stored in parts may take several steps to be stored and loaded.
    """

    def __init__(self, n_slots: int, traits: MemoryTraits, prompt_cache: PromptCacheSize) -> None:
        self._traits = traits
        self._keys = itertools.count(1)
        self.caches = [SlotCache(index, traits) for index in range(n_slots)]
        self.texts = PromptCache(prompt_cache, self._keys)
        self.n_step = prompt_cache.n_part or UNLIMITED
        """Tokens of texts that may be stored and loaded in a step beside others; at least a part."""
        self._n_movable = UNLIMITED  # tokens that may still be stored and loaded before the next step
        self._filled: set[int] = set()  # slots that hold their text only when `_edits` are applied
        self._edits: list[CacheEdit] = []  # not counting what the caches themselves ask for
        self._ordered: list[CacheEdit] = []  # to be applied before those

    @property
    def n_cells(self) -> int:
        """Cells of all that is valid or about to be loaded; shared ones count once for each slot."""
        return sum([cache.n_cells for cache in self.caches])

    @property
    def has_moved(self) -> bool:
        """Whether parts were stored or loaded in this step: there may be more for the next one."""
        return self._n_movable < self.n_step < UNLIMITED

    def begin_step(self, *, alone: bool = False) -> None:
        """Go on with what is being loaded. Beside others `n_step` tokens move in a step; alone: all."""
        self._n_movable = UNLIMITED if alone else self.n_step
        for cache in self.caches:
            if cache.loading:
                self._load(cache, cache.loading)

    def limit_moves(self) -> None:
        """No more than `n_step` tokens move in this step from now on."""
        self._n_movable = min(self._n_movable, self.n_step)

    def can_store(self, cache: SlotCache) -> bool:
        """Whether the native cache of a slot holds its text, and needs no edits before."""
        return cache.index not in self._filled and cache.can_store

    def store(self, cache: SlotCache, n_keep: int = 0, n_least: int = MIN_TOKENS) -> int | None:
        """Store the text of a slot, which is to keep `n_keep` tokens of it; returns how much is left.

        None: it cannot be stored, or has fewer than `n_least` tokens.
        """
        if len(cache) < n_least or cache.index in self._filled:
            return None
        stored = self.texts.store(cache, n_keep, self._n_movable, self._held)
        if stored is None:
            return None
        edits, n_left = stored
        self._edits += edits
        parts = [edit.snapshot for edit in edits if isinstance(edit, Store) and edit.snapshot.kind == "text"]
        self._n_movable -= sum(part.end - part.start for part in parts)
        return n_left

    def fetch(self, text: StoredText) -> None:
        """Have a text brought from disk, over several steps; not yet, if others have its place."""
        if self.texts.may_fetch(text, self._held):
            self._edits += self.texts.fetch(text, self._held)

    def expect(self, saved: SavedText) -> StoredText | None:
        """See `PromptCache.expect`; None: there is no room, as others have its place or it is too large."""
        if not self.texts.has_place(len(saved.tokens), saved.n_checkpoints, self._held):
            return None
        text, edits = self.texts.expect(saved, self._held)
        self._edits += edits
        return text

    def drop(self, text: StoredText) -> None:
        """Forget a text, unless it is being loaded or read."""
        if text not in self._held:
            self._edits += self.texts.drop(text)

    @property
    def _held(self) -> list[StoredText]:
        """Texts that must not give way."""
        coming = [text for text in self.texts.texts if text.place is TextPlace.COMING]
        return coming + [each.loading.text for each in self.caches if each.loading]

    def checkpoint(self, cache: SlotCache) -> None:
        """Keep the state of a slot in host memory."""
        cache.store(next(self._keys))

    def empty(self, cache: SlotCache) -> None:
        """Drop what a slot holds, before anything else is put there."""
        cache.keep(0)
        self._edits += cache.take_edits()

    def copy(self, source: SlotCache, cache: SlotCache, n_tokens: int) -> None:
        """Give an empty slot the first `n_tokens` of another, which has a state of them if it needs one."""
        assert n_tokens <= len(source), f"slot {source.index} has no {n_tokens} tokens to share"
        if n_tokens in source.saved:
            self._edits.append(Restore(cache.index, source.saved[n_tokens], n_tokens))
        else:
            self._edits.append(Copy(source.index, cache.index, n_tokens))
            if not self._traits.can_trim:
                self._edits += source.take_stores()
                self._edits.append(Restore(cache.index, source.checkpoints[n_tokens], n_tokens))
                self._filled.add(cache.index)
        cache.add(source.tokens[:n_tokens], can_roll_back=False)

    def load(self, cache: SlotCache, text: StoredText, n_tokens: int) -> None:
        """Give an empty slot the first `n_tokens` of a stored text: some now, if any may be moved."""
        cache.loading = Loading(text, n_tokens)
        self._load(cache, cache.loading)

    def finish_loads(self) -> None:
        """What has been loaded may be shared from now on."""
        if self._filled:
            self._order_edits()

    def pop_edits(self) -> list[CacheEdit]:
        """What makes every native cache hold what is valid in it; to be applied before anything else."""
        self._order_edits()
        edits, self._ordered = self._ordered, []
        return edits

    def _order_edits(self) -> None:
        """What is asked for from now on is applied after all that was."""
        edits, self._edits = self._edits, []
        self._filled.clear()
        for cache in self.caches:
            edits += cache.take_edits()
        if edits:
            self._ordered += loads_last(edits)

    def _load(self, cache: SlotCache, loading: Loading) -> None:
        if self._n_movable <= 0:
            return
        n_before = len(cache)
        self._edits += self.texts.load(loading.text, cache, loading.n_keep, self._n_movable)
        self._filled.add(cache.index)
        self._n_movable -= len(cache) - n_before
        if len(cache) == loading.n_keep:
            cache.loading = None
