"""The slots of the draft model's KV cache: one for each sequence, and others for side branches."""

from collections.abc import Iterable

from shared.cache_edits import SlotMemory, apply_edits
from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.slot_cache import SlotCache, common_prefix_length
from shared.text_store import MIN_TOKENS, NO_PROMPT_CACHE, PromptCacheSize, TextStore


class SlotPool:
    """Allocates slots. Slots of ended sequences keep their tokens, for sequences with the same prefix.

    When a sequence gets a slot, tokens of idle slots move to a prompt cache in host memory, because attention
    would read them with each draft token. They are not moved if the memory cannot be cut back, because the
    text would end with a draft.
    """

    def __init__(
        self,
        model: SlotMemory,
        n_sequences: int,
        n_slots: int,
        traits: MemoryTraits = PLAIN,
        prompt_cache: PromptCacheSize = NO_PROMPT_CACHE,
    ) -> None:
        self._model = model
        self._texts = TextStore(n_slots, traits, prompt_cache if traits.can_trim else NO_PROMPT_CACHE)
        self._slots = self._texts.caches
        self._idle, self._idle_branches = self._slots[:n_sequences], self._slots[n_sequences:]
        self._is_storing = False  # True while texts of idle slots are only partly stored

    def __bool__(self) -> bool:
        """Return whether there is a slot for another sequence."""
        return bool(self._idle)

    def take(self, tokens: list[int]) -> SlotCache:
        """Return the idle slot with the longest prefix of `tokens`; other tokens may follow the prefix.

        If the slot is `loading`, it gets more tokens of the prefix in the next steps.
        """
        slot = max(self._idle, key=lambda cache: (cache.reuse_score(tokens), not cache))
        self._idle.remove(slot)
        self._texts.begin_step()
        if 2 * slot.shared_with(tokens) < len(slot):
            self._texts.store(slot)
        self._store_idle()
        self._load_longer(slot, tokens[:-1])
        self._apply()
        return slot

    def _load_longer(self, slot: SlotCache, tokens: list[int]) -> None:
        """Load the stored prefix of `tokens` into `slot`, if it is much longer than the slot's own."""
        n, text = self._texts.best(
            tokens,
            lambda text: text.reachable(common_prefix_length(text.tokens, tokens), can_trim=True),
        )
        if text and n >= slot.shared_with(tokens) + MIN_TOKENS:
            self._texts.empty(slot)
            self._texts.load(slot, text, n)

    def _store_idle(self) -> None:
        """Store the texts of idle slots, a part in each step, and then empty the slots."""
        self._is_storing = False
        for slot in self._idle:
            n_left = self._texts.store(slot)
            self._is_storing |= bool(n_left)
            if n_left == 0:
                self._texts.empty(slot)

    def give_back(self, slot: SlotCache) -> None:
        """Free the slot of an ended sequence; its tokens stay cached."""
        slot.loading = None
        self._idle.append(slot)

    def take_branch(self, main: SlotCache, n_shared: int) -> SlotCache:
        """Return an idle slot, set to the first `n_shared` tokens of `main`."""
        slot = self._idle_branches.pop()
        self._texts.empty(slot)
        if n_shared not in main.saved:
            self.save([main])
        self._texts.copy(main, slot, n_shared)
        self._apply()
        return slot

    def save(self, slots: Iterable[SlotCache]) -> None:
        """Store the states of `slots`, for a return after a rejected draft or for a side branch."""
        for slot in slots:
            if not slot.traits.can_trim:
                apply_edits(slot.save(), self._model)

    def give_back_branch(self, slot: SlotCache) -> None:
        """Free the slot of a side branch, and drop its tokens."""
        slot.keep(0)
        self._idle_branches.append(slot)

    def clear_idle(self) -> bool:
        """Drop the tokens of ended sequences; return whether there were any."""
        had_tokens = any(self._idle)
        for slot in self._idle:
            slot.keep(0)
        return had_tokens

    def trim_all(self) -> None:
        """Before a step, remove from the model the tokens that slots no longer hold, and move texts."""
        self._texts.begin_step()
        if self._is_storing:
            self._store_idle()
        self._apply()

    def _apply(self) -> None:
        apply_edits(self._texts.pop_edits(), self._model)

    def check_integrity(self, in_use: Iterable[SlotCache]) -> None:
        """Raise AssertionError unless each slot is either idle or in use."""
        slots = [*self._idle, *self._idle_branches, *in_use]
        assert sorted(slot.index for slot in slots) == list(range(len(self._slots))), "a slot is lost"
        assert not any(self._idle_branches), "an idle branch slot still holds tokens"
