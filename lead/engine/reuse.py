"""Decides how much of the cached texts a sequence can reuse, and whether moving a text pays."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lead.engine.engine_limits import EngineLimits
from lead.engine.sequence import EngineSequence
from lead.engine.slot import Slot
from shared.cache_edits import Snapshot
from shared.slot_cache import SlotCache, StoredText, common_prefix_length, cut_length
from shared.text_store import MIN_TOKENS, UNLIMITED, PromptCacheSize, TextStore

MIN_TOKENS_SAVED = 32
"""A sequence waits for the prompt of another one if that saves it at least this many tokens."""

_CELLS_PRICE = 31
"""The price, in tokens, of a copy between slots with cells of their own. All cells of the slot are copied."""

_MIN_IDLE_STEPS = 4.0
"""The minimum of `MovePrice.idle_steps`: the usual number on a CPU, and the value before any measurement."""
_STEP_SHARE = 0.25
"""The share of a step's time that moving texts may add. One part of a text may always be moved."""
_WEIGHT = 0.3
"""The weight of the latest move in the average."""
_MAX_SURPRISE = 10.0
"""A move counts at most this many times the usual price, as the machine may have slept during it."""
_MIN_SECONDS = 1e-9
_MAX_IDLE_STEPS, _MAX_PARTS = 10_000.0, 64
"""Limits, whatever is measured: unused texts must leave their slots, and no step may move gigabytes."""
_FORGOTTEN = 0.9
"""The factor by which the price falls when a text was lost because of it."""


class Prefix(NamedTuple):
    """The first `n` tokens of a sequence, cached in its own slot, in another slot or in the prompt cache.

    price: the cost of fetching them, as the number of tokens that could be decoded in that time.
    """

    n: int
    price: int
    source: SlotCache | StoredText

    @property
    def gain(self) -> int:
        """The number of tokens that need not be decoded, minus the price."""
        return self.n - self.price


class Prefixes:
    """Finds prefixes of sequences among the texts of all slots and of the prompt cache."""

    def __init__(self, slots: Sequence[Slot], stored: TextStore, limits: EngineLimits) -> None:
        self._slots = slots
        self._stored = stored
        self._traits = limits.traits
        self._n_least_saved = limits.prompt_cache.n_least_saved
        # Between slots with cells of their own, llama.cpp copies all cells. A copy cannot always be cut back.
        self._can_copy = limits.traits.can_trim or not limits.own_cells
        self._copy_price = _CELLS_PRICE if limits.own_cells else 0
        # In exact mode, the bits of a generated token may differ from its bits in a prompt.
        self._separates_prompts = limits.batch_sizes is not None and not limits.batch_sizes.is_uniform

    def best(self, slot: Slot, sequence: EngineSequence, n_cells: int) -> Prefix:
        """Return the prefix with the largest gain for `sequence` in `slot`.

        n_cells: the maximum number of cells that a text from the prompt cache may take.
        """
        own = Prefix(self.reusable(slot, sequence), 0, slot.cache)
        others = (Prefix(self.copyable(each, sequence), self._copy_price, each.cache) for each in self._slots)
        n_loaded, text = self.loadable(sequence, n_cells)
        price = MIN_TOKENS if text and text.place == "memory" else self._n_least_saved
        stored = [Prefix(n_loaded, price, text)] if text else []
        return max((own, *others, *stored), key=lambda prefix: prefix.gain)

    def is_prefix_being_decoded(self, sequence: EngineSequence) -> bool:
        """Return whether a prompt with the same prefix is being decoded, so that waiting for its cache pays.

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
        """Return the length to copy for `sequence` from `source` once `source` has read its prompt."""
        prompt = source.sequence
        assert prompt
        n = self.common(prompt, sequence)
        if self._traits.can_trim:
            return n
        return cut_length(sequence.context, n, (at for at in prompt.checkpoints if at > len(source.cache)))

    def common(self, decoding: EngineSequence, waiting: EngineSequence) -> int:
        """Return the length of the common prefix, without the last token of `waiting`: see `useful`."""
        n = common_prefix_length(decoding.context, waiting.context)
        return cut_length(waiting.context, min(n, len(waiting.context) - 1))

    def may_share(self, sequence: EngineSequence) -> bool:
        """Return whether a slot may copy from another slot for `sequence`."""
        return self._can_copy and may_reuse(sequence)

    def copyable(self, source: Slot, sequence: EngineSequence) -> int:
        """Return the length of the cache of `source` that another slot can copy for `sequence`."""
        if not self.may_share(sequence):
            return 0
        n = self.useful(source.cache, sequence)
        return n if self._traits.can_trim else cut_length(sequence.context, n, source.cache.checkpoints)

    def loadable(self, sequence: EngineSequence, n_cells: int = UNLIMITED) -> tuple[int, StoredText | None]:
        """Return the length that a slot can load for `sequence` from the best stored text, and that text.

        (0, None) if no text fits into `n_cells` cells.
        """
        if not may_reuse(sequence):
            return 0, None

        def serves(text: StoredText) -> int:
            n = text.reachable(self.useful(text, sequence), can_trim=self._traits.can_trim)
            if text.place != "memory" and not self._may_fetch(text, n, sequence):
                return 0
            return n if text.n_cells(n) <= n_cells else 0

        return self._stored.best(sequence.context, serves)

    def _may_fetch(self, text: StoredText, n: int, sequence: EngineSequence) -> bool:
        """Return whether `sequence` owns this text on disk, and `n` of its tokens are worth a wait."""
        is_worth_it = text.owner == sequence.request.keep_for and n >= self._n_least_saved
        return is_worth_it and self._stored.may_fetch(text)

    def reusable(self, slot: Slot, sequence: EngineSequence) -> int:
        """Return how many tokens of its own cache a slot can keep for `sequence`."""
        return slot.cache.reachable(self.useful(slot.cache, sequence)) if may_reuse(sequence) else 0

    def useful(self, text: SlotCache | StoredText, sequence: EngineSequence) -> int:
        """Return the length of the common prefix of `text` and `sequence`, without the sequence's last token.

        The last token is always decoded, for its logits.
        """
        n = min(common_prefix_length(text.tokens, sequence.context), len(sequence.context) - 1)
        if self._separates_prompts and text.n_prefill != sequence.n_prefill:
            n = min(n, text.n_prefill, sequence.n_prefill)
        return cut_length(sequence.context, n)


def may_reuse(sequence: EngineSequence) -> bool:
    """Return whether a sequence may reuse caches. A preempted sequence may always reuse its own tokens."""
    return sequence.request.cache_prompt or sequence.number is not None


class MovePrice:
    """The price of moving a text between a slot and host memory, learned from past moves.

    Recent moves weigh most. If the price stops all moves, `forget` lowers it until a move is tried again.
    """

    def __init__(self, size: PromptCacheSize, step_bytes: int) -> None:
        """step_bytes: the bytes of weights that a step of one token reads; 0: unknown.

        Divided by the time of such a step, these bytes give the speed of memory, and so the cost of idle
        texts.
        """
        self._size = size
        self._step_bytes = step_bytes
        self._bytes = self._seconds = 0.0
        self.idle_steps = _MIN_IDLE_STEPS
        """The number of steps in which an idle text slows other sequences by the time to store and load
        it.
        """
        self.n_step = size.n_part or UNLIMITED
        """Tokens of texts to move per step while sequences run: one part, or more if moving is quick."""
        self.token_seconds: float | None = None
        """Seconds to read a token of a prompt; None: unknown. The scheduler sets it."""

    def pays(self, n_tokens: int) -> bool:
        """Return whether storing and loading a text of `n_tokens` is quicker than computing it again."""
        if self.token_seconds is None or not self._bytes:
            return True
        return 2 * self._size.of(n_tokens) * self._seconds / self._bytes < n_tokens * self.token_seconds

    def learn(self, moved: Iterable[Snapshot], seconds: float, step_seconds: float) -> None:
        """Record that storing or loading `moved` took `seconds`. step_seconds: T(1)."""
        n_bytes = sum(self._size.of(text.end - text.start) for text in moved)
        if not n_bytes:
            return
        if self._bytes:
            usual = max(self._seconds, _MIN_SECONDS) * n_bytes / self._bytes
            seconds = min(seconds, _MAX_SURPRISE * usual)
        self._bytes = (1 - _WEIGHT) * self._bytes + _WEIGHT * n_bytes
        self._seconds = (1 - _WEIGHT) * self._seconds + _WEIGHT * seconds
        if not self._step_bytes:
            return
        each = max(self._seconds, _MIN_SECONDS) / self._bytes
        idle_steps = 2 * each * self._step_bytes / step_seconds
        self.idle_steps = min(max(_MIN_IDLE_STEPS, idle_steps), _MAX_IDLE_STEPS)
        if n_part := self._size.n_part:
            n_parts = int(_STEP_SHARE * step_seconds / (each * self._size.of(n_part)))
            self.n_step = n_part * min(max(1, n_parts), _MAX_PARTS)

    def forget(self) -> None:
        """Lower the price, which caused the loss of a text and may have been measured in a slow moment."""
        self._seconds *= _FORGOTTEN
