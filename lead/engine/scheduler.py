"""The scheduler: which tokens of which sequences go into the next step, and what the step's logits mean.

Continuous batching: every step is one decode over all running sequences, prompt chunks beside generation.
Knows no model and no clock: logits are passed in, so it is tested with a fake model in milliseconds.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lead.engine.board import Board, Proposal
from lead.engine.messages import Committed, DraftsDropped, Finished, FinishReason, Started, Submit
from lead.engine.planner import Offer, Planner
from lead.engine.slot import EngineSequence, Slot
from lead.engine.verify import verify
from shared.llama.span import Span
from shared.sampling import Sampler
from shared.slot_cache import SlotCache

SchedulerEvent = Started | Committed | Finished | DraftsDropped


@dataclass(frozen=True, slots=True)
class Limits:
    """What the model can hold. `n_ctx` counts all slots together, `n_ctx_sequence` one sequence.

    While some sequence is generating, the prompts of others are processed in chunks of at most
    `n_prompt_chunk` tokens a step, so that it does not stall.
    """

    n_slots: int
    n_ctx: int
    n_ctx_sequence: int
    n_batch: int
    n_prompt_chunk: int = 128
    can_trim: bool = True


@dataclass(frozen=True, slots=True)
class Entry:
    """A slot's part of a step: `n_fed` committed tokens not yet in the cache, then `draft`.

    Logits exist only where the committed tokens are fed to their end.
    """

    slot: Slot
    n_fed: int
    draft: tuple[int, ...] = ()
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A step: cut the caches back as `trims` (slot, n_keep) say, then decode `spans` (one per entry).

    `news` is what planning it has already settled.
    """

    news: list[Started]
    trims: list[tuple[int, int]]
    entries: list[Entry]
    spans: list[Span]


class Scheduler:
    """`plan` and `commit` alternate; `submit`, `cancel` and drafts come in between."""

    def __init__(
        self,
        limits: Limits,
        board: Board,
        planner: Planner,
        make_sampler: Callable[[Submit], Sampler],
        end_tokens: frozenset[int],
    ) -> None:
        if limits.n_batch < limits.n_slots:
            raise ValueError("a batch must have room for one token of every slot")
        if limits.n_ctx_sequence > limits.n_ctx + 1:  # the last token of a sequence is never decoded
            raise ValueError("the cache must have room for one whole sequence")
        self._limits = limits
        self._board = board
        self._planner = planner
        self._make_sampler = make_sampler
        self._end_tokens = end_tokens
        self._slots = [Slot(SlotCache(index)) for index in range(limits.n_slots)]
        self._waiting: deque[EngineSequence] = deque()
        self._n_steps = 0
        self._n_started = 0
        self._frugal = False  # the last plan found no room: the next takes as little as it can

    @property
    def idle(self) -> bool:
        """Nothing to do until a command arrives."""
        return not self._waiting and not any(slot.sequence for slot in self._slots)

    def submit(self, request: Submit) -> None:
        """Queue a sequence; it starts when a slot is free. The prompt must leave room for one token."""
        assert 0 < len(request.tokens) < self._limits.n_ctx_sequence
        sequence = EngineSequence(
            request.sequence, list(request.tokens), self._make_sampler(request), request.max_tokens
        )
        self._board.open(sequence.id)
        self._waiting.append(sequence)

    def cancel(self, sequence_id: str) -> None:
        """Stop a sequence, wherever it is; one that is unknown has ended already."""
        self._board.close(sequence_id)
        self._waiting = deque(sequence for sequence in self._waiting if sequence.id != sequence_id)
        for slot in self._running():
            if slot.sequence and slot.sequence.id == sequence_id:
                self._release(slot)

    def post_draft(self, sequence_id: str, source: str, base: int, tokens: Sequence[int]) -> None:
        """Put a draft on the board."""
        self._board.post(sequence_id, source, base, tokens, self._committed(sequence_id))

    def plan(self) -> Plan | None:
        """The next step, or None if there is nothing to do."""
        news = self._admit()
        self._make_room_for_one_token_each()
        running = self._running()
        if not running:
            return None
        self._n_steps += 1
        entries = self._entries(running)
        return Plan(news, self._trims(), entries, [_span(entry) for entry in entries])

    def commit(self, plan: Plan, logits: Sequence[NDArray[np.float32]]) -> list[SchedulerEvent]:
        """Take in a decoded plan's logits, one array of shape (n_logits, n_vocab) per span."""
        self._frugal = False
        events: list[SchedulerEvent] = []
        for entry, rows in zip(plan.entries, logits, strict=True):
            events += self._commit_entry(entry, rows)
        events += [DraftsDropped(source=source, n_stale=n) for source, n in self._board.take_stale().items()]
        return events

    def shed(self) -> list[SchedulerEvent]:
        """The cache had no room for a plan although the count said so: give something up.

        The next step takes one token of each sequence and nobody new. Beside that go the caches of idle
        slots, then the youngest sequence's place; the last one left ends.
        """
        was_frugal, self._frugal = self._frugal, True
        if self._evict_idle() or not was_frugal:
            return []
        running = self._running()
        if len(running) > 1:
            self._preempt(running[-1])
            return []
        return [self._finish(slot, "length") for slot in running]

    def check_integrity(self) -> None:
        """Raise AssertionError unless the books are right."""
        running = self._running()
        ids = [slot.sequence.id for slot in running if slot.sequence] + [s.id for s in self._waiting]
        assert len(ids) == len(set(ids)), f"a sequence is in two places: {ids}"
        for slot in running:
            assert slot.sequence
            tokens = slot.sequence.tokens
            assert len(slot.cache) < len(tokens), "nothing left to decode"
            assert slot.cache.tokens == tokens[: len(slot.cache)], "the cache holds another text"
        assert sum(len(slot.cache) for slot in self._slots) <= self._limits.n_ctx, "more cells than there are"
        self._board.check_integrity(set(ids))

    # Slots: who runs where

    def _running(self) -> list[Slot]:
        """Slots with a sequence, the one that started first in front."""
        running = [slot for slot in self._slots if slot.sequence]
        return sorted(running, key=_number)

    def _idle_slots(self) -> list[Slot]:
        """Slots without a sequence, the one used longest ago in front."""
        return sorted((slot for slot in self._slots if not slot.sequence), key=lambda slot: slot.last_used)

    def _admit(self) -> list[Started]:
        started = []
        while self._waiting and (idle := self._idle_slots()) and self._fits(self._waiting[0]):
            sequence = self._waiting.popleft()
            slot = max(idle, key=lambda slot: slot.cache.affinity(sequence.tokens))
            n_reused = self._reusable(slot, sequence)
            slot.sequence = sequence
            slot.cache.keep(n_reused)
            if sequence.number is None:
                sequence.number = self._n_started
                self._n_started += 1
                started.append(Started(sequence=sequence.id, n_cached=n_reused))
        return started

    def _fits(self, sequence: EngineSequence) -> bool:
        """Whether its prompt finds room beside what the others have: one that does not waits its turn."""
        held = [len(slot.sequence.tokens) + 1 for slot in self._slots if slot.sequence]
        if not held:
            return True
        return not self._frugal and sum(held) + len(sequence.tokens) + 1 <= self._limits.n_ctx

    def _reusable(self, slot: Slot, sequence: EngineSequence) -> int:
        """How much of a slot's cache serves `sequence`; its last token is always decoded, for the logits."""
        n = min(slot.cache.shared_with(sequence.tokens), len(sequence.tokens) - 1)
        return n if self._limits.can_trim or n == slot.cache.n_physical else 0

    def _release(self, slot: Slot) -> None:
        slot.sequence = None
        slot.last_used = self._n_steps

    def _preempt(self, slot: Slot) -> None:
        """Back into the queue, in front: it will go on with the same tokens, since its text is a function
        of (seed, position) and its committed tokens. Its cache is now one that can be evicted.
        """
        sequence = slot.sequence
        assert sequence
        self._release(slot)
        self._waiting.appendleft(sequence)

    # Cells: the KV cache is one pool

    def _n_free(self) -> int:
        return self._limits.n_ctx - sum(len(slot.cache) for slot in self._slots)

    def _evict_idle(self) -> bool:
        """Give up the least recently used idle cache; False if there is none."""
        for slot in self._idle_slots():
            if len(slot.cache):
                slot.cache.keep(0)
                return True
        return False

    def _make_room_for_one_token_each(self) -> None:
        while (running := self._running()) and self._n_free() < len(running):
            if not self._evict_idle():
                self._preempt(running[-1])

    def _free_up_to(self, n_wanted: int) -> int:
        """Evict idle caches until `n_wanted` cells are free, if that is possible; returns the free cells."""
        while self._n_free() < n_wanted and self._evict_idle():
            pass
        return self._n_free()

    # Entries: what each slot decodes

    def _entries(self, running: list[Slot]) -> list[Entry]:
        todo = {slot.index: slot.n_todo for slot in running}
        generating = [slot for slot in running if todo[slot.index] == 1]
        prompts = [slot for slot in running if todo[slot.index] > 1]
        proposals = [self._proposal(slot) for slot in generating]
        depths = self._planner.depths(
            [
                Offer(slot.sequence.id if slot.sequence else "", len(proposal.tokens) if proposal else 0)
                for slot, proposal in zip(generating, proposals, strict=True)
            ]
        )
        # Every running slot has one place in the batch for certain; the rest goes to drafts, then to prompts.
        n_wanted = len(running) if self._frugal else sum(depths) + sum(todo.values())
        n_spare = min(self._limits.n_batch, self._free_up_to(n_wanted), n_wanted) - len(running)
        entries = []
        for slot, proposal, depth in zip(generating, proposals, depths, strict=True):
            n_draft = min(depth, n_spare)
            n_spare -= n_draft
            entries.append(_generating_entry(slot, proposal, n_draft))
        if generating:
            n_spare = min(n_spare, self._limits.n_prompt_chunk)
        for slot in prompts:
            n_more = min(todo[slot.index] - 1, n_spare)
            n_spare -= n_more
            entries.append(Entry(slot, 1 + n_more))
        return entries

    def _proposal(self, slot: Slot) -> Proposal | None:
        """The best draft for a slot, cut to what can still be committed beside the bonus token."""
        sequence = slot.sequence
        if sequence is None or not self._limits.can_trim:
            return None
        proposal = self._board.best(sequence.id, sequence.tokens)
        n_useful = sequence.n_left(self._limits.n_ctx_sequence) - 1
        if proposal is None or n_useful <= 0:
            return None
        return Proposal(proposal.source, proposal.tokens[:n_useful])

    def _trims(self) -> list[tuple[int, int]]:
        """Cut every cache back to what is valid in it."""
        return [trim for slot in self._slots if (trim := slot.cache.take_trim())]

    # Commit: what the logits mean

    def _commit_entry(self, entry: Entry, rows: NDArray[np.float32]) -> list[SchedulerEvent]:
        slot, sequence = entry.slot, entry.slot.sequence
        assert sequence
        n_before = len(slot.cache)
        slot.cache.add([*sequence.tokens[n_before : n_before + entry.n_fed], *entry.draft])
        if len(rows) == 0:  # a prompt chunk that does not reach the end
            return []
        start = len(sequence.tokens)

        def choose(i: int) -> int:
            token = sequence.sampler.choose(rows[i], start + i)
            sequence.sampler.accept(token)
            return token

        verdict = verify(entry.draft, choose, self._end_tokens)
        sequence.tokens += verdict.tokens
        # The last committed token is never in the cache: it is fed in the next step.
        slot.cache.keep(len(sequence.tokens) - 1)
        committed = Committed(
            sequence=sequence.id,
            start=start,
            tokens=verdict.tokens,
            n_accepted=verdict.n_accepted,
            rejected=list(entry.draft[verdict.n_accepted :]),
            sources=[entry.source] * len(entry.draft) if entry.source else [],
        )
        reason = self._finish_reason(sequence)
        return [committed] if reason is None else [committed, self._finish(slot, reason)]

    def _finish_reason(self, sequence: EngineSequence) -> FinishReason | None:
        if sequence.tokens[-1] in self._end_tokens:
            return "stop"
        return "length" if sequence.n_left(self._limits.n_ctx_sequence) <= 0 else None

    def _finish(self, slot: Slot, reason: FinishReason) -> Finished:
        sequence = slot.sequence
        assert sequence
        self._release(slot)
        self._board.close(sequence.id)
        return Finished(sequence=sequence.id, reason=reason)

    def _committed(self, sequence_id: str) -> list[int]:
        for slot in self._slots:
            if slot.sequence and slot.sequence.id == sequence_id:
                return slot.sequence.tokens
        return next((sequence.tokens for sequence in self._waiting if sequence.id == sequence_id), [])


def _number(slot: Slot) -> int:
    return slot.sequence.number or 0 if slot.sequence else 0


def _generating_entry(slot: Slot, proposal: Proposal | None, n_draft: int) -> Entry:
    if proposal is None or n_draft == 0:
        return Entry(slot, 1)
    return Entry(slot, 1, proposal.tokens[:n_draft], proposal.source)


def _span(entry: Entry) -> Span:
    slot, n_cached = entry.slot, len(entry.slot.cache)
    tokens = slot.sequence.tokens if slot.sequence else []
    fed = tokens[n_cached : n_cached + entry.n_fed]
    reaches_end = n_cached + entry.n_fed == len(tokens)
    return Span(slot.index, n_cached, [*fed, *entry.draft], 1 + len(entry.draft) if reaches_end else 0)
