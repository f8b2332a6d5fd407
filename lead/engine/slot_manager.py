"""The slots of the KV cache: which sequence runs in which slot, and which is preempted when cells run out."""

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lead.engine.engine_limits import EngineLimits
from lead.engine.events import Started
from lead.engine.reuse import MIN_TOKENS_SAVED, MovePrice, Prefixes, may_reuse
from lead.engine.sequence import EngineSequence
from lead.engine.slot import Slot, TrialPlace
from shared.cache_edits import CacheEdit, Snapshot
from shared.errors import RequestError, UnavailableError
from shared.slot_cache import SlotCache, StoredText
from shared.text_store import TextStore

_STEPS_OF_ANSWER = 64
"""The minimum number of steps that a new sequence is expected to take."""


class SlotManager:
    """Manages slots that share one pool of `n_ctx` cells. Sequences wait until a slot is free.

    It is the only writer of slots, their caches, and the tokens of sequences.

    A prefix in one slot serves other slots, too. Its cells are then counted once per slot, so there is never
    less room than counted. If the memory cannot be cut back to any length, a prefix serves other slots only
    up to a checkpoint.

    Texts are stored in a prompt cache in host memory when their slot gets another text. If slots share a
    pool, texts of idle slots are stored while other slots run.
    """

    def __init__(self, limits: EngineLimits) -> None:
        self.n_ctx, self._n_ctx_sequence = limits.n_ctx, limits.n_ctx_sequence
        self._traits = limits.traits
        self._n_checkpoints = limits.n_checkpoints
        self._stores_idle = not limits.own_cells and limits.prompt_cache.n_bytes > 0
        self.texts = TextStore(limits.n_slots, limits.traits, limits.prompt_cache)
        """The texts in slots, in host memory and on disk."""
        self.price = MovePrice(limits.prompt_cache, limits.step_bytes)
        """The price of moving a text to host memory and back."""
        self._slots = [Slot(cache) for cache in self.texts.caches]
        self._prefixes = Prefixes(self._slots, self.texts, limits)
        self.sequences: dict[str, EngineSequence] = {}
        """All sequences that have not ended, by id. Waiting ones start in this order."""
        self._running: list[Slot] = []
        self._n_started = 0  # numbers sequences
        self._n_released = 0  # the clock of `Slot.last_used`

    @property
    def n_free(self) -> int:
        """The number of cells that hold nothing valid, and are not reserved for a text being loaded."""
        return self.n_ctx - self.texts.n_cells

    def running(self) -> list[Slot]:
        """Return the slots with a sequence, in the order in which the sequences started."""
        return self._running.copy()

    def add(self, sequence: EngineSequence) -> None:
        """Queue a sequence; it starts when a slot is free."""
        self.sequences[sequence.id] = sequence

    def remove(self, sequence: EngineSequence) -> None:
        """Remove a sequence that has ended; the cache of its slot may serve another sequence."""
        del self.sequences[sequence.id]
        for slot in self._slots:
            if slot.sequence is sequence:
                self._release(slot)

    def forget_last_image(self, sequence: EngineSequence) -> None:
        """Discard the rows of the image that the last step read for a cancelled sequence.

        When the client left, the front may have overwritten the image's embeddings while the engine read
        them.
        """
        for slot in self._running:
            if slot.sequence is sequence:
                n = len(slot.cache)
                starts = (image.start for image in sequence.images if image.start < n <= image.end)
                slot.cache.keep(next(starts, n))

    def admit(self, *, only_if_idle: bool) -> list[Started]:
        """Give free slots to waiting sequences; return an event for each.

        only_if_idle: only if no sequence is running.
        """
        started = []
        self.texts.begin_step(alone=all(slot.cache.loading for slot in self._running))
        while self._any_waits and (idle := self._idle()) and (sequence := self._next(idle)):
            self._keep_for(sequence)
            if not self._fits(sequence, only_if_idle) or self._prefixes.is_prefix_being_decoded(sequence):
                break
            self.texts.finish_loads()
            slot = _best_slot(idle, sequence)
            n_common = max(self._prefixes.useful(each.cache, sequence) for each in self._slots)
            n_reused = self._reuse(slot, sequence)
            if n_reused is None:
                break
            if n_common - n_reused >= MIN_TOKENS_SAVED:
                self._add_checkpoint(sequence, n_common)
            slot.sequence, slot.cache.n_prefill, slot.evicted_tokens = sequence, sequence.n_prefill, []
            slot.cache.owner, slot.cache.cuts = sequence.request.keep_for, sequence.checkpoints
            started.append(self._started(sequence, n_reused, slot))
            insort(self._running, slot, key=_number)
        if started:
            for slot in self._idle():
                slot.n_steps_idle += _STEPS_OF_ANSWER
        return started

    def _started(self, sequence: EngineSequence, n_reused: int, slot: Slot) -> Started:
        """Return the event of a sequence that got a slot; number the sequence if this is its first slot."""
        again = sequence.n_cached is not None
        if sequence.number is None:
            sequence.number = self._n_started
            self._n_started += 1
        if not again:
            sequence.n_cached = n_reused
        return Started(sequence=sequence.id, n_cached=n_reused, slot=slot.index, again=again)

    def add_decoded(
        self, slot: Slot, tokens: Sequence[int], *, has_draft: bool = False, can_roll_back: bool = True
    ) -> None:
        """Record that `tokens` were decoded, perhaps with a draft at their end.

        can_roll_back: see `SlotCache.add`.
        """
        assert slot.sequence
        slot.cache.add(tokens, can_roll_back=can_roll_back)
        if self._n_checkpoints and not has_draft and len(slot.cache) in slot.sequence.checkpoints:
            self.texts.checkpoint(slot.cache, self._n_checkpoints)

    def commit(self, slot: Slot, tokens: Sequence[int]) -> None:
        """Append `tokens` to the sequence; discard the part of the draft that conflicts with them.

        The last committed token is never in the cache: the next step decodes it.
        """
        assert slot.sequence
        slot.sequence.append(tokens)
        slot.cache.keep(len(slot.sequence.context) - 1)

    def shift_contexts(self) -> None:
        """Discard the oldest tokens of each full context; the tokens that stay will be decoded again.

        A shifted sequence queues behind waiting sequences, because decoding again takes the same time in any
        slot, and the sequence may never end.
        """
        for slot in self.running():
            if (sequence := slot.sequence) and sequence.is_context_full:
                slot.cache.keep(sequence.shift_context())
                slot.cache.n_prefill = sequence.n_prefill
                if self._any_waits:
                    self._release(slot)
                    self.sequences[sequence.id] = self.sequences.pop(sequence.id)

    def discard_draft(self, slot: Slot) -> None:
        """Discard the draft tokens in the cache of `slot`; keep the committed ones."""
        assert slot.sequence
        slot.cache.keep(len(slot.sequence.context))

    def _release(self, slot: Slot) -> None:
        assert slot.sequence
        if inline := slot.sequence.drafts.inline:
            inline.leave()
        slot.sequence = slot.cache.loading = None
        self._running.remove(slot)
        slot.n_steps_idle = 0
        self._n_released += 1
        slot.last_used = self._n_released

    def preempt(self, slot: Slot) -> None:
        """Take the slot from its sequence, which waits again; its cache can then be evicted.

        The sequence will continue with the same tokens: they are a function of seed, position and the tokens
        before.
        """
        assert slot.sequence
        slot.sequence.drop_verification()
        self._release(slot)

    def empty(self, indices: Iterable[int]) -> None:
        """Empty slots; their sequences are decoded again from the beginning."""
        for index in indices:
            self._slots[index].cache.keep(0)

    def mark_lost(self, indices: Iterable[int]) -> None:
        """Record that the model has emptied slots; their sequences are decoded again from the beginning."""
        for index in indices:
            self._slots[index].cache.mark_lost()

    def evict_idle(self, *, waits: bool = False) -> bool:
        """Empty the least recently used cache of an idle slot; return False if all are empty.

        waits: store the cache first, over several steps if it is long; return False until that is done.
        """
        for slot in self._idle():
            if len(slot.cache):
                n_left = self.store_before_loss(slot.cache)
                if n_left and waits:
                    return False
                self._move_out(slot, is_stored=n_left == 0)
                return True
        return False

    def make_room_for_one_token_each(self) -> None:
        """Evict idle caches, then preempt the youngest sequences, until each running slot has room."""
        while (running := self._running) and self.n_free < sum([slot.n_required for slot in running]):
            if not self.evict_idle():
                self.preempt(running[-1])

    def free_up_to(self, n_wanted: int) -> int:
        """Evict idle caches until `n_wanted` cells are free, if possible; return the number of free cells.

        More cells may become free later, when a long text has been stored.
        """
        while (n_free := self.n_free) < n_wanted and self.evict_idle(waits=True):
            pass
        return n_free

    def find_place(self, n_tokens: int) -> TrialPlace | None:
        """Return a place to time steps of up to `n_tokens` tokens while nothing runs; None: there is none."""
        for slot in self._idle():
            n_cached = len(slot.cache)
            fits = n_tokens <= min(self.n_free, self._n_ctx_sequence - n_cached)
            if fits and (self._traits.can_trim or not n_cached):
                return TrialPlace(slot.index, n_cached, self.pop_edits())
        return None

    def pop_edits(self, *, decodes: bool = True) -> list[CacheEdit]:
        """Return the edits that make native caches match their records; see `TextStore.pop_edits`."""
        if decodes:
            for slot in self._running:
                self._end_draft(slot)
        return self.texts.pop_edits(decodes=decodes)

    def _end_draft(self, slot: Slot) -> None:
        """Discard the unverified part of a slot's draft, while the model can still roll it back."""
        sequence, n_rollback = slot.sequence, self._traits.n_rollback
        if n_rollback and sequence and sequence.verification:
            slot.cache.keep(len(sequence.context) + sequence.verification.end_draft())

    def save_before_drafts(self, slots: Iterable[Slot]) -> list[CacheEdit]:
        """Return edits that save states, so that rejected drafts of `slots` can be undone.

        Apply them after the edits of `pop_edits`.
        """
        if not self._traits.replays:
            return []
        return [edit for slot in slots for edit in slot.cache.save()]

    def describe(self) -> dict[str, Any]:
        """Return ids and numbers of tokens, without any text, for the log of a failed check."""
        return {
            "slots": [
                {"n_cached": len(slot.cache), "n_physical": slot.cache.n_physical}
                | (slot.sequence.describe() if slot.sequence else {})
                for slot in self._slots
            ],
            "waiting": [sequence.id for sequence in self._waiting()],
            "n_free": self.n_free,
        }

    def check_integrity(self) -> None:
        """Raise AssertionError unless the records agree with each other."""
        in_order = sorted((slot for slot in self._slots if slot.sequence), key=_number)
        assert in_order == self._running, "the running slots are not the slots with a sequence, in order"
        for slot in in_order:
            assert slot.sequence
            assert slot.sequence in self.sequences.values(), "a sequence that has ended has a slot"
            tokens = slot.sequence.context
            if verification := slot.sequence.verification:
                tokens = [*tokens, *(each.token for each in verification.draft)]
                assert len(slot.cache) == len(tokens), "verified tokens are not in the cache"
            else:
                assert len(slot.cache) < len(tokens), "nothing left to decode"
            assert slot.cache.tokens == tokens[: len(slot.cache)], "the cache holds another text"
        for slot in self._slots:
            assert len(slot.cache) <= slot.cache.n_physical, "a token is valid but not in the cache"
        assert self.n_free >= 0, "more cells are used than exist"

    @property
    def _any_waits(self) -> bool:
        """True if a sequence has no slot."""
        return len(self.sequences) > len(self._running)

    def _waiting(self) -> Iterator[EngineSequence]:
        """Return the sequences without a slot, in the order in which they start."""
        running = [slot.sequence for slot in self._slots]
        return (sequence for sequence in self.sequences.values() if sequence not in running)

    def _idle(self) -> list[Slot]:
        """Return the slots without a sequence, the least recently used first."""
        return sorted((slot for slot in self._slots if not slot.sequence), key=lambda slot: slot.last_used)

    def _next(self, idle: list[Slot]) -> EngineSequence | None:
        """Return the first waiting sequence that may run in one of the `idle` slots."""
        free = {slot.index for slot in idle}
        return next((s for s in self._waiting() if s.request.slot is None or s.request.slot in free), None)

    def _fits(self, sequence: EngineSequence, only_if_idle: bool) -> bool:
        """Return whether there is room for the text of `sequence` beside the running sequences."""
        held = [len(slot.sequence.context) + 1 for slot in self._running if slot.sequence]
        if not held:
            return True
        return not only_if_idle and sum(held) + len(sequence.context) + 1 <= self.n_ctx

    def _keep_for(self, sequence: EngineSequence) -> None:
        """Add checkpoints where prompts that are being decoded diverge from the waiting `sequence`."""
        if self._traits.can_trim or not self._prefixes.may_share(sequence):
            return
        for slot in self._slots:
            if slot.sequence and slot.n_to_decode > 1:
                n = self._prefixes.common(slot.sequence, sequence)
                n_now = self._prefixes.copyable(slot, sequence)
                n_later = self._prefixes.copyable_later(slot, sequence)
                if n - max(n_now, n_later) >= MIN_TOKENS_SAVED:
                    self._add_checkpoint(slot.sequence, n)

    def _reuse(self, slot: Slot, sequence: EngineSequence) -> int | None:
        """Keep the reusable part of the cache in `slot`, or copy or load a longer prefix; return its length.

        None: not yet, because a text is being read from disk, or texts are stored first over several steps.
        """
        n_running = sum(slot.cache.n_cells for slot in self._running)
        n, _, source = self._prefixes.best(slot, sequence, self.n_ctx - n_running)
        if isinstance(source, StoredText):
            if source.place != "memory":
                self.texts.fetch(source)
                return None
            slot.cache.loading, slot.cache.n_loading = source, n  # so that it stays, and has its cells
        if not self._make_way(slot, n if source is slot.cache else 0):
            slot.cache.loading = None
            return None
        if isinstance(source, StoredText):
            self.texts.load(slot.cache, source, n)
        elif source is slot.cache:
            return len(source)  # fewer, if what can be rolled back was stored before
        else:
            self.texts.copy(source, slot.cache, n)
        return n

    def _make_way(self, slot: Slot, n_keep: int) -> bool:
        """Cut the text of an idle slot, and free cells; return False while texts are being stored first."""
        if 2 * n_keep < len(slot.cache) and self.store_before_loss(slot.cache, n_keep):
            return False
        if n_keep:
            slot.cache.keep(n_keep)
        else:
            self.texts.empty(slot.cache)
        return not slot.cache.loading or self.free_up_to(0) >= 0

    def store_before_loss(self, cache: SlotCache, n_keep: int = 0) -> int | None:
        """Call `TextStore.store` and return its result.

        If computing the text again is quicker, store nothing, lower the estimated price and return None.
        """
        if self.price.pays(len(cache)):
            return self.texts.store(cache, n_keep)
        self.price.forget()
        return None

    def store_idle(self) -> None:
        """Store and empty idle slots before others run, because attention reads all cells of the pool."""
        if not self._stores_idle or not self._running:
            return
        self.texts.limit_moves()
        for slot in self._idle():
            slot.n_steps_idle += 1
            is_due = slot.n_steps_idle > self.price.idle_steps and self.price.pays(len(slot.cache))
            if is_due and self.texts.store(slot.cache) == 0:
                self._move_out(slot, is_stored=True)

    def _move_out(self, slot: Slot, *, is_stored: bool) -> None:
        slot.evicted_tokens = list(slot.cache.tokens) if is_stored else []
        slot.cache.keep(0)

    def store_all(self) -> bool:
        """Store some texts of idle slots, for writing to disk; return whether all are stored.

        The slots keep their texts.
        """
        self.texts.begin_step()
        left = [self.texts.store(slot.cache) for slot in self._idle() if slot.cache.owner is not None]
        return not any(left)

    def idle_slot(self, index: int) -> Slot:
        """Return the slot with this index.

        Raises RequestError if it does not exist, UnavailableError if busy.
        """
        if not 0 <= index < len(self._slots):
            raise RequestError("Invalid slot ID", "id_slot")
        if self._slots[index].sequence:
            raise UnavailableError(f"slot {index} is busy. Try again when its answer has ended")
        return self._slots[index]

    def learn_moves(self, texts: Sequence[Snapshot], seconds: float, step_seconds: float) -> None:
        """Record that storing or loading `texts` took `seconds`. step_seconds: T(1)."""
        self.price.learn(texts, seconds, step_seconds)
        self.texts.n_step = self.price.n_step

    def _add_checkpoint(self, sequence: EngineSequence, n_tokens: int) -> None:
        """Add a checkpoint where two texts diverge: further texts may share the prefix (an agent's
        instructions).
        """
        if len(sequence.checkpoints) < self._n_checkpoints and may_reuse(sequence):
            sequence.checkpoints = tuple(sorted({*sequence.checkpoints, n_tokens}))


def _best_slot(idle: list[Slot], sequence: EngineSequence) -> Slot:
    """Return the requested slot; otherwise the idle slot whose cache serves the sequence best."""
    if sequence.request.slot is not None:
        return next(slot for slot in idle if slot.index == sequence.request.slot)
    if not sequence.request.cache_prompt:
        return idle[0]
    return max(idle, key=lambda slot: (slot.cache.reuse_score(sequence.context), not slot.cache))


def _number(slot: Slot) -> int:
    return slot.sequence.number or 0 if slot.sequence else 0
