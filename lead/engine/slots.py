"""The slots of the KV cache: which sequence runs where, and who gives way when the cells run out."""

from collections import deque
from collections.abc import Iterator

from lead.engine.edit import Copy, Edit, Trim
from lead.engine.events import Started
from lead.engine.slot import EngineSequence, Slot
from shared.slot_cache import SlotCache, n_alike

_WORTH_WAITING = 32
"""A sequence stays in the queue while another's prompt is read if that spares it so many tokens."""


class Slots:
    """All slots share one pool of `n_ctx` cells. Sequences wait in a queue until a slot is free.

    With `can_copy` a beginning that stands in one slot serves others, too. Its cells are then counted once
    for each: there is never less room than the books say.
    """

    def __init__(self, n_slots: int, n_ctx: int, *, can_trim: bool, can_copy: bool) -> None:
        self._n_ctx = n_ctx
        self._can_trim = can_trim
        self._can_copy = can_copy
        self._edits: list[Edit] = []  # besides the trims that caches ask for
        self._slots = [Slot(SlotCache(index)) for index in range(n_slots)]
        self._waiting: deque[EngineSequence] = deque()
        self._n_started = 0
        self._n_released = 0

    @property
    def idle(self) -> bool:
        """No sequence runs or waits."""
        return not self._waiting and not any(slot.sequence for slot in self._slots)

    @property
    def ids(self) -> list[str]:
        """Of all sequences, running and waiting."""
        return [sequence.id for sequence in self._sequences()]

    @property
    def n_free(self) -> int:
        """Cells that hold nothing valid."""
        return self._n_ctx - sum(len(slot.cache) for slot in self._slots)

    def running(self) -> list[Slot]:
        """Slots with a sequence, the one that started first in front."""
        return sorted((slot for slot in self._slots if slot.sequence), key=_number)

    def tokens_of(self, sequence_id: str) -> list[int]:
        """The tokens of a sequence; empty if there is none of this id."""
        return next((s.tokens for s in self._sequences() if s.id == sequence_id), [])

    def enqueue(self, sequence: EngineSequence) -> None:
        """It starts when a slot is free."""
        self._waiting.append(sequence)

    def remove(self, sequence_id: str) -> None:
        """Forget a sequence, wherever it is."""
        self._waiting = deque(sequence for sequence in self._waiting if sequence.id != sequence_id)
        for slot in self._slots:
            if slot.sequence and slot.sequence.id == sequence_id:
                self.release(slot)

    def admit(self, *, nobody_new: bool) -> list[Started]:
        """Give free slots to the sequences that wait; with `nobody_new` only if none runs."""
        started = []
        while (idle := self._idle()) and (sequence := self._next(idle)) and self._fits(sequence, nobody_new):
            if self._is_being_read(sequence):
                break
            self._waiting.remove(sequence)
            slot = _best_slot(idle, sequence)
            n_reused = self._reuse(slot, sequence)
            slot.sequence = sequence
            again = sequence.number is not None
            if not again:
                sequence.number = self._n_started
                self._n_started += 1
                sequence.n_cached = n_reused
            started.append(Started(sequence=sequence.id, n_cached=n_reused, slot=slot.index, again=again))
        return started

    def release(self, slot: Slot) -> None:
        """Its sequence has ended; what is in its cache may serve another."""
        slot.sequence = None
        self._n_released += 1
        slot.last_used = self._n_released

    def preempt(self, slot: Slot) -> None:
        """Back into the queue, in front: it will go on with the same tokens, since its text is a function
        of (seed, position) and its committed tokens. Its cache is now one that can be evicted.
        """
        sequence = slot.sequence
        assert sequence
        self.release(slot)
        self._waiting.appendleft(sequence)

    def evict_idle(self) -> bool:
        """Give up the least recently used idle cache; False if there is none."""
        for slot in self._idle():
            if len(slot.cache):
                slot.cache.keep(0)
                return True
        return False

    def make_room_for_one_token_each(self) -> None:
        """Idle caches give way first, then the youngest sequences."""
        while (running := self.running()) and self.n_free < len(running):
            if not self.evict_idle():
                self.preempt(running[-1])

    def free_up_to(self, n_wanted: int) -> int:
        """Evict idle caches until `n_wanted` cells are free, if that is possible; returns the free cells."""
        while self.n_free < n_wanted and self.evict_idle():
            pass
        return self.n_free

    def take_edits(self) -> list[Edit]:
        """What makes every native cache hold what is valid in it; told once."""
        edits, self._edits = self._edits, []
        return edits + [Trim(*trim) for slot in self._slots if (trim := slot.cache.take_trim())]

    def check_integrity(self) -> None:
        """Raise AssertionError unless the books are right."""
        assert len(self.ids) == len(set(self.ids)), f"a sequence is in two places: {self.ids}"
        for slot in self.running():
            assert slot.sequence
            tokens = slot.sequence.tokens
            assert len(slot.cache) < len(tokens), "nothing left to decode"
            assert slot.cache.tokens == tokens[: len(slot.cache)], "the cache holds another text"
        assert self.n_free >= 0, "more cells than there are"

    def _sequences(self) -> Iterator[EngineSequence]:
        yield from (slot.sequence for slot in self._slots if slot.sequence)
        yield from self._waiting

    def _idle(self) -> list[Slot]:
        """Slots without a sequence, the one used longest ago in front."""
        return sorted((slot for slot in self._slots if not slot.sequence), key=lambda slot: slot.last_used)

    def _next(self, idle: list[Slot]) -> EngineSequence | None:
        """The first in the queue that does not wait for a slot that is taken."""
        free = {slot.index for slot in idle}
        return next((s for s in self._waiting if s.options.slot is None or s.options.slot in free), None)

    def _fits(self, sequence: EngineSequence, nobody_new: bool) -> bool:
        """Whether its prompt finds room beside what the others have: one that does not waits its turn."""
        held = [len(slot.sequence.tokens) + 1 for slot in self._slots if slot.sequence]
        if not held:
            return True
        return not nobody_new and sum(held) + len(sequence.tokens) + 1 <= self._n_ctx

    def _is_being_read(self, sequence: EngineSequence) -> bool:
        """Whether a prompt that begins like its own is being processed: then it is better to wait for that.

        Prompts are processed one after the other anyway, so nobody loses a moment by it.
        """
        reading = [slot for slot in self._slots if slot.sequence and slot.n_todo > 1]
        if not reading or not self._may_share(sequence):
            return False
        n_there = {slot.index: slot.cache.shared_with(sequence.tokens) for slot in self._slots}
        n_elsewhere = max((n_there[slot.index] for slot in self._slots if slot not in reading), default=0)
        n_coming = max(n_alike(slot.sequence.tokens, sequence.tokens) for slot in reading if slot.sequence)
        n_coming = min(n_coming, len(sequence.tokens) - 1)
        return n_coming > max(n_there.values()) and n_coming - n_elsewhere >= _WORTH_WAITING

    def _reuse(self, slot: Slot, sequence: EngineSequence) -> int:
        """Leave in `slot` what serves `sequence`, or bring what serves it better; returns how much it is."""
        n_own = self._reusable(slot, sequence)
        source = max(self._slots, key=lambda each: each.cache.shared_with(sequence.tokens))
        n_copied = self._reusable(source, sequence) if self._may_share(sequence) else 0
        if n_copied <= n_own:
            slot.cache.keep(n_own)
            return n_own
        slot.cache.keep(0)
        if trim := slot.cache.take_trim():
            self._edits.append(Trim(*trim))
        self._edits.append(Copy(source.index, slot.index, n_copied))
        slot.cache.share(source.cache, n_copied)
        return n_copied

    def _may_share(self, sequence: EngineSequence) -> bool:
        return self._can_copy and _may_reuse(sequence)

    def _reusable(self, slot: Slot, sequence: EngineSequence) -> int:
        """How much of a slot's cache serves `sequence`; its last token is always decoded, for the logits."""
        if not _may_reuse(sequence):
            return 0
        n = min(slot.cache.shared_with(sequence.tokens), len(sequence.tokens) - 1)
        return n if self._can_trim or n == slot.cache.n_physical else 0


def _may_reuse(sequence: EngineSequence) -> bool:
    """What it has decoded itself before it had to give way it may always find again."""
    return sequence.options.cache_prompt or sequence.number is not None


def _best_slot(idle: list[Slot], sequence: EngineSequence) -> Slot:
    """The one that it wants; otherwise the one whose cache serves it best."""
    if sequence.options.slot is not None:
        return next(slot for slot in idle if slot.index == sequence.options.slot)
    if not sequence.options.cache_prompt:
        return idle[0]
    return max(idle, key=lambda slot: slot.cache.affinity(sequence.tokens))


def _number(slot: Slot) -> int:
    return slot.sequence.number or 0 if slot.sequence else 0
