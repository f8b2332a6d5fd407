"""Questions about how much of what is cached serves a sequence; `SlotManager` acts."""

from collections.abc import Sequence
from typing import NamedTuple

from lead.engine.engine_limits import EngineLimits
from lead.engine.sequence import EngineSequence
from lead.engine.slot import Slot
from shared.slot_cache import SlotCache, StoredText, common_prefix_length, cut_length
from shared.text_store import MIN_TOKENS, UNLIMITED, TextStore

MIN_TOKENS_SAVED = 32
"""A sequence waits in the queue while another's prompt is decoded if that saves it this many tokens."""

_CELLS_PRICE = 31
"""Where slots have cells of their own, all of them are copied: as quick as reading this many tokens."""


class Prefix(NamedTuple):
    """The first `n` tokens of a sequence, and who has them: its own slot, another one, or the prompt cache.

    price: how many tokens are decoded as quickly as these are got from there.
    """

    n: int
    price: int
    source: SlotCache | StoredText

    @property
    def gain(self) -> int:
        """Tokens that need not be decoded, less the price."""
        return self.n - self.price


class Prefixes:
    """The texts of all slots and of the prompt cache, as beginnings of others."""

    def __init__(self, slots: Sequence[Slot], stored: TextStore, limits: EngineLimits) -> None:
        self._slots = slots
        self._stored = stored
        self._traits = limits.traits
        self._n_least_saved = limits.prompt_cache.n_least_saved
        # Between slots with cells of their own, llama.cpp copies all, which cannot always be cut back.
        self._can_copy = limits.traits.can_trim or not limits.own_cells
        self._copy_price = _CELLS_PRICE if limits.own_cells else 0
        # In exact mode, what was generated may have other bits than as a part of another prompt.
        self._separates_prompts = limits.batch_sizes is not None and not limits.batch_sizes.is_uniform

    def best(self, slot: Slot, sequence: EngineSequence, n_cells: int) -> Prefix:
        """The best beginning of `slot` for `sequence`; a stored text may take `n_cells` cells at most."""
        own = Prefix(self.reusable(slot, sequence), 0, slot.cache)
        others = (Prefix(self.copyable(each, sequence), self._copy_price, each.cache) for each in self._slots)
        n_loaded, text = self.loadable(sequence, n_cells)
        price = MIN_TOKENS if text and text.place == "memory" else self._n_least_saved
        stored = [Prefix(n_loaded, price, text)] if text else []
        return max((own, *others, *stored), key=lambda prefix: prefix.gain)

    def is_prefix_being_decoded(self, sequence: EngineSequence) -> bool:
        """True if a prompt with the same prefix is being decoded: then its cache is worth waiting for.

        Prompts are decoded one after the other anyway, so waiting costs no time.
        """
        decoding = [slot for slot in self._slots if slot.sequence and slot.n_to_decode > 1]
        if not decoding or not self.may_share(sequence):
            return False
        n_held = {slot.index: self.copyable(slot, sequence) for slot in self._slots}
        held_elsewhere = (n_held[slot.index] for slot in self._slots if slot not in decoding)
        n_elsewhere = max(held_elsewhere, default=0)
        n_coming = max(self.copyable_later(slot, sequence) for slot in decoding)
        if n_coming <= max(n_held.values()) or n_coming - n_elsewhere < MIN_TOKENS_SAVED:
            return False
        n_stored, _ = self.loadable(sequence)
        return n_coming - n_stored >= MIN_TOKENS_SAVED

    def copyable_later(self, source: Slot, sequence: EngineSequence) -> int:
        """The length that another slot can copy for `sequence` once the prompt has been decoded."""
        prompt = source.sequence
        assert prompt
        n = self.common(prompt, sequence)
        if self._traits.can_trim:
            return n
        return cut_length(sequence.context, n, (at for at in prompt.checkpoints if at > len(source.cache)))

    def common(self, decoding: EngineSequence, waiting: EngineSequence) -> int:
        """Length of the common prefix, without the last token of `waiting`: see `useful`."""
        n = common_prefix_length(decoding.context, waiting.context)
        return cut_length(waiting.context, min(n, len(waiting.context) - 1))

    def may_share(self, sequence: EngineSequence) -> bool:
        """True if slots may copy from each other for `sequence`."""
        return self._can_copy and may_reuse(sequence)

    def copyable(self, source: Slot, sequence: EngineSequence) -> int:
        """The length of a slot's cache that another slot can copy for `sequence`."""
        if not self.may_share(sequence):
            return 0
        n = self.useful(source.cache, sequence)
        return n if self._traits.can_trim else cut_length(sequence.context, n, source.cache.checkpoints)

    def loadable(self, sequence: EngineSequence, n_cells: int = UNLIMITED) -> tuple[int, StoredText | None]:
        """The stored text, and its length, that a slot can have for `sequence` in at most `n_cells` cells."""
        if not may_reuse(sequence):
            return 0, None

        def serves(text: StoredText) -> int:
            n = text.reachable(self.useful(text, sequence), can_trim=self._traits.can_trim)
            if text.place != "memory" and not self._may_fetch(text, n, sequence):
                return 0
            return n if text.n_cells(n) <= n_cells else 0

        return self._stored.best(sequence.context, serves)

    def _may_fetch(self, text: StoredText, n: int, sequence: EngineSequence) -> bool:
        """Whether `sequence` may wait for `n` tokens of a text on disk, which serves its owner only."""
        if text.owner != sequence.request.keep_for or n < self._n_least_saved:
            return False
        return text.place == "coming" or self._stored.may_fetch(text)

    def reusable(self, slot: Slot, sequence: EngineSequence) -> int:
        """The number of tokens of its own cache that a slot can keep for `sequence`."""
        return slot.cache.reachable(self.useful(slot.cache, sequence)) if may_reuse(sequence) else 0

    def useful(self, text: SlotCache | StoredText, sequence: EngineSequence) -> int:
        """Length of the common prefix with `sequence`, whose last token is always decoded, for the logits."""
        n = min(common_prefix_length(text.tokens, sequence.context), len(sequence.context) - 1)
        if self._separates_prompts and text.n_prefill != sequence.n_prefill:
            n = min(n, text.n_prefill, sequence.n_prefill)
        return cut_length(sequence.context, n)


def may_reuse(sequence: EngineSequence) -> bool:
    """A sequence that was preempted may always reuse what it decoded itself."""
    return sequence.request.cache_prompt or sequence.number is not None
