"""The scheduler: which tokens of which sequences go into the next step, and what becomes of each after it.

Continuous batching: every step is one decode over all running sequences, prompt chunks beside generation.
What a step's logits mean is the verifier's part.
Knows no model and no clock: logits and times are passed in; it is tested with a fake model in milliseconds.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lead.engine.commands import Submit
from lead.engine.context_shift import ContextShift
from lead.engine.engine_limits import EngineLimits
from lead.engine.events import (
    Committed,
    Failed,
    Finished,
    FinishReason,
    PromptProgress,
    SequenceEvent,
    Started,
)
from lead.engine.prompt_chunk import STEP_SECONDS, STEP_SECONDS_OF_OWN_CELLS, PromptChunk
from lead.engine.sequence import EngineSequence
from lead.engine.slot import MAX_REPLAY, Slot
from lead.engine.slot_manager import SlotManager
from lead.engine.speculation.drafts import EMPTY_CHAIN, DraftChain
from lead.engine.speculation.manager import GeneratingSequence, SpeculationManager, SpeculationPlan
from lead.engine.speculation.speculation_stats import StepReport
from lead.engine.step_plan import PlanEntry, StepPlan, TrialPlace
from lead.engine.verifier import SlotOutcome, Verifier
from shared.llama.span import (
    Span,
    n_passes,
    padding,
    prompts_first,
    slots_in_last_pass,
    wants_two_passes,
)
from shared.llama.width_policy import passes
from shared.sampling.grammar_waits import NoWait, WaitsForGrammars
from shared.sampling.sampler import Sampler

_N_ANSWER_HEADER = 8
"""Chat templates end a prompt with at most about this many tokens that later turns do not contain."""
_MIN_CHECKPOINT = 64
"""Shorter prompts are decoded again as quickly as a checkpoint is stored."""
_MIN_COPIED = 32
"""Where slots have cells of their own, all of them are copied: as quick as reading a few tokens."""


class Scheduler:
    """`plan` and `commit` alternate; `submit` and `cancel` come in between.

    `now` is always seconds of one monotonic clock.
    """

    def __init__(
        self,
        limits: EngineLimits,
        speculation: SpeculationManager,
        make_sampler: Callable[[Submit], Sampler],
        end_tokens: frozenset[int],
        patience: WaitsForGrammars | None = None,
    ) -> None:
        if limits.n_batch < limits.n_slots:
            raise ValueError("a batch must have room for one token of every slot")
        if limits.n_ctx_sequence > limits.n_ctx + 1:  # the last token of a sequence is never decoded
            raise ValueError("the cache must have room for one whole sequence")
        self._limits = limits
        self._speculation = speculation
        self._make_sampler = make_sampler
        self._end_tokens = end_tokens
        self._verifier = Verifier(end_tokens, patience or NoWait())
        self._slots = SlotManager(
            limits.n_slots,
            limits.n_ctx,
            limits.traits,
            # Between slots with cells of their own, llama.cpp copies all, which cannot always be cut back.
            can_copy=limits.n_ctx_slot is None or limits.traits.can_trim,
            min_copied=1 if limits.n_ctx_slot is None else _MIN_COPIED,
            n_checkpoints=limits.n_checkpoints,
            prompt_cache=limits.prompt_cache,
            stores_idle=limits.n_ctx_slot is None,
            separates_prompts=limits.widths is not None and not limits.widths.is_uniform,
        )
        step_seconds = STEP_SECONDS if limits.n_ctx_slot is None else STEP_SECONDS_OF_OWN_CELLS
        self._prompt_chunk = PromptChunk(limits.n_prompt_chunk, limits.n_batch, step_seconds)
        self._minimal_step = False  # the cache was full: the next step takes as few tokens as it can

    @property
    def idle(self) -> bool:
        """Nothing to do until a command arrives."""
        return self._slots.idle

    def submit(self, request: Submit, now: float) -> list[SequenceEvent]:
        """Queue a sequence; it starts when a slot is free. The prompt must leave room for one token.

        An earlier engine process may have generated all of it, and ended before it said so: it is finished.
        """
        sequence = EngineSequence(
            request.sequence,
            list(request.tokens),
            functools.partial(self._make_sampler, request),
            request.max_tokens,
            request.n_prompt,
            options=request.options,
            was_started=request.n_cached is not None,
            n_cached=request.n_cached or 0,
            checkpoints=self._checkpoints(request),
            shift=self._shift(request),
        )
        if sequence.n_generated and (reason := self._finish_reason(sequence)):
            return [Finished(sequence=sequence.id, reason=reason)]
        assert 0 < len(sequence.context) < self._limits.n_ctx_sequence
        self._speculation.open(sequence, request, now)
        self._slots.enqueue(sequence)
        return []

    def cancel(self, sequence_id: str) -> None:
        """Stop a sequence, running or waiting; one that is unknown has ended already."""
        self._speculation.close(sequence_id)
        self._slots.remove(sequence_id)

    def plan(self, now: float) -> StepPlan | None:
        """The next step, or None if there is nothing to do."""
        events = self._take(self._verifier.go_on(self._slots.running()), now)
        self._slots.shift_contexts()
        events += self._with_progress(self._slots.admit(only_if_idle=self._minimal_step))
        self._slots.make_room_for_one_token_each()
        running = [slot for slot in self._slots.running() if not slot.is_waiting and not slot.loading]
        if not running:
            return StepPlan(events, self._slots.pop_edits()) if events or not self.idle else None
        generating = self._generating_slots(running)
        prompts = [slot for slot in running if slot not in generating]
        drafts = self._plan_drafts(generating, self._n_prompt(generating, prompts), now)
        if drafts.wait > 0 or drafts.order:
            return StepPlan(events, self._slots.pop_edits(), wait=drafts.wait, order=drafts.order)
        entries = self._without_unsafe_drafts(self._entries(generating, drafts.chains, prompts))
        self._slots.store_idle()
        edits = self._slots.pop_edits()
        edits += self._slots.save_before_drafts(entry.slot for entry in entries if entry.draft.tokens)
        spans = [entry.span for entry in entries]
        n_padding, n_of_passes = self._n_padding(spans)
        return StepPlan(
            events,
            edits,
            entries,
            spans,
            n_prompt=sum(entry.n_fed for entry in entries[len(generating) :]),
            n_expected=None if prompts else drafts.n_expected,
            n_padding=n_padding,
            n_passes=n_of_passes,
        )

    def commit(
        self, plan: StepPlan, logits: Sequence[NDArray[np.float32]], now: float, seconds: float
    ) -> list[SequenceEvent]:
        """Take in a decoded plan's logits, one array of shape (n_logits, n_vocab) per span.

        Decoding took `seconds`.
        """
        self._minimal_step = False
        self._prompt_chunk.learn(plan.n_prompt, seconds)
        self._verifier.begin_step()
        events: list[SequenceEvent] = []
        last = self._slots_in_last_pass(plan.spans)
        for entry, rows in zip(plan.entries, logits, strict=True):
            events += self._commit_entry(entry, rows, now, can_roll_back=entry.slot.index in last)
        events += self._take(self._verifier.end_step([entry.slot for entry in plan.entries], seconds), now)
        depths = [
            len(entry.draft.tokens) for entry, rows in zip(plan.entries, logits, strict=True) if len(rows)
        ]
        n_committed = sum(len(event.tokens) for event in events if isinstance(event, Committed))
        is_usual = not any(entry.slot.is_waiting for entry in plan.entries)
        n_expected = plan.n_expected if is_usual else None
        self._speculation.on_step(
            StepReport(plan.n_tokens, seconds, depths, n_committed, n_expected, plan.n_passes)
        )
        return events

    def on_cache_full(self, lost: Sequence[int] = ()) -> list[SequenceEvent]:
        """The cache had no room for a plan, although there should have been enough: free some.

        The model had to empty the slots that are `lost`.
        The next step decodes one token of each running sequence. If that is not enough either, idle slots are
        emptied, then the youngest sequence is preempted; the last one left ends.
        """
        self._slots.lose(lost)
        was_minimal, self._minimal_step = self._minimal_step, True
        if self._slots.evict_idle() or not was_minimal:
            return []
        running = self._slots.running()
        if len(running) > 1:
            self._slots.preempt(running[-1])
            return []
        return [self._finish(slot, "length") for slot in running]

    def on_window_lost(self, slots: Sequence[int]) -> None:
        """A plan was not decoded because `slots` no longer hold what they should: they are read again."""
        self._slots.empty(slots)

    def find_place(self, n_tokens: int) -> TrialPlace | None:
        """Where steps of up to `n_tokens` can be timed while nothing is running."""
        limits = self._limits
        return self._slots.find_place(n_tokens, limits.n_ctx_slot or limits.n_ctx_sequence)

    def describe(self) -> dict[str, Any]:
        """Its records, without any text: for the log of a failed check."""
        return {**self._slots.describe(), "speculation": self._speculation.describe_records()}

    def check_integrity(self) -> None:
        """Raise AssertionError unless the records of slots and speculation agree with each other."""
        self._slots.check_integrity()
        self._speculation.check_integrity(set(self._slots.sequence_ids))

    def _checkpoints(self, request: Submit) -> tuple[int, ...]:
        """Where the prompt is stored: where the client's last message begins, and before the answer begins.

        A later turn of a chat has the same tokens up to there, but maybe another beginning of the answer. And
        what a context shift keeps need not be decoded again.
        """
        if self._limits.n_checkpoints == 0:
            return ()
        n_prompt = request.n_prompt or len(request.tokens)
        lengths = {n for n in [request.options.checkpoint, request.n_keep or 0] if 0 < n < n_prompt}
        if n_prompt >= _MIN_CHECKPOINT:
            lengths.add(n_prompt - _N_ANSWER_HEADER)
        return tuple(sorted(lengths))

    def _shift(self, request: Submit) -> ContextShift | None:
        return None if request.n_keep is None else ContextShift(self._limits.n_ctx_sequence, request.n_keep)

    # Plan: what each slot decodes

    def _with_progress(self, started: list[Started]) -> list[SequenceEvent]:
        """If progress was requested, report the cached tokens before anything is decoded."""
        events: list[SequenceEvent] = []
        slots = {slot.index: slot for slot in self._slots.running()} if started else {}
        for event in started:
            events.append(event)
            slot = slots[event.slot]
            _begin_sampler(slot)
            if not event.again and slot.sequence and slot.sequence.options.progress:
                events.append(_progress(slot, slot.sequence))
        return events

    def _generating_slots(self, running: list[Slot]) -> list[Slot]:
        """Those whose next token is due, as far as all that they replay fits into the step."""
        n_spare = 0 if self._minimal_step else self._limits.n_batch - len(running)
        slots = []
        for slot in running:
            if slot.is_generating and slot.n_to_decode - 1 <= n_spare:
                slots.append(slot)
                n_spare -= slot.n_to_decode - 1
        return slots

    def _n_prompt(self, generating: list[Slot], prompts: list[Slot]) -> int:
        """How many tokens of prompts are to be in the batch, at most."""
        if not prompts:
            return 0
        max_tokens = self._prompt_chunk.n_tokens if generating else self._limits.n_batch
        if self._minimal_step:
            max_tokens = 1
        return min(sum(slot.n_to_decode for slot in prompts), max_tokens)

    def _without_unsafe_drafts(self, entries: list[PlanEntry]) -> list[PlanEntry]:
        """Without drafts, if one could not be rolled back or there is no room for their padding."""
        if not self._limits.rolls_states_back:
            return entries
        spans = [entry.span for entry in entries]
        n_padding, _ = self._n_padding(spans)
        n_cells = sum(len(span.tokens) for span in spans) + n_padding
        last = self._slots_in_last_pass(spans)
        is_safe = all(entry.slot.index in last for entry in entries if entry.draft.tokens)
        if is_safe and (self._limits.n_ctx_slot or self._slots.free_up_to(n_cells) >= n_cells):
            return entries
        return [replace(entry, draft=EMPTY_CHAIN) for entry in entries]

    def _slots_in_last_pass(self, spans: Sequence[Span]) -> frozenset[int]:
        """Those of which a draft can be rolled back when `spans` were decoded."""
        limits = self._limits
        if not limits.rolls_states_back:
            return frozenset(span.slot for span in spans)
        in_order = limits.n_ctx_slot is not None
        return slots_in_last_pass(spans, limits.n_batch, limits.n_ctx_each, in_order=in_order)

    def _n_padding(self, spans: Sequence[Span]) -> tuple[int, int]:
        """How many tokens the model adds to `spans`, and in how many passes it decodes them."""
        limits = self._limits
        if limits.widths:
            parts = passes(spans, limits.widths)
            return sum(part.n_padding for together in parts for part in together), len(parts)
        if limits.tiles_attention and wants_two_passes(spans):
            return 0, 2
        if not limits.pads_unequal_lengths:
            return 0, n_passes(spans, [0] * len(spans), equal_lengths=limits.traits.equal_lengths)
        n_added = n = 0
        for together in [spans] if limits.traits.can_trim else prompts_first(spans):
            n_padding = padding(together, limits.n_batch, limits.n_ctx_each)
            n_added += sum(n_padding)
            n += n_passes(together, n_padding, equal_lengths=limits.traits.equal_lengths)
        return n_added, n

    def _plan_drafts(self, generating: list[Slot], n_prompt: int, now: float) -> SpeculationPlan:
        if not self._limits.traits.can_speculate or self._minimal_step:
            return SpeculationPlan([EMPTY_CHAIN] * len(generating), 0.0, len(generating))
        sequences = [self._generating(slot, slot.sequence) for slot in generating if slot.sequence]
        return self._speculation.plan(sequences, n_prompt, now)

    def _generating(self, slot: Slot, sequence: EngineSequence) -> GeneratingSequence:
        n_useful, n_rollback = sequence.n_useful(self._limits.n_ctx_sequence), self._limits.traits.n_rollback
        if slot.n_to_decode > MAX_REPLAY:
            n_useful = 0
        elif n_rollback:
            n_useful = min(n_useful, n_rollback)
        if widths := self._limits.widths:
            is_last_of_prompt = slot.is_in_prompt and not widths.is_uniform  # which is decoded otherwise
            n_useful = 0 if is_last_of_prompt else min(n_useful, widths.max_draft)
        n_left = sequence.n_left(self._limits.n_ctx_sequence)
        return GeneratingSequence(sequence.id, n_useful, slot.n_to_decode, n_left, slot.index)

    def _entries(
        self, generating: list[Slot], chains: list[DraftChain], prompts: list[Slot]
    ) -> list[PlanEntry]:
        # What generating slots require has its place in the batch; the rest goes to drafts, then to prompts.
        n_required = sum(slot.n_to_decode for slot in generating)
        n_wanted = n_required + self._n_prompt(generating, prompts)
        if not self._minimal_step:
            n_wanted += sum(len(chain.tokens) for chain in chains)
        n_spare = min(self._limits.n_batch, self._slots.free_up_to(n_wanted), n_wanted) - n_required
        n_kept = min(n_spare, 1) if prompts else 0
        entries = []
        for slot, chain in zip(generating, chains, strict=True):
            draft = chain.cut(n_spare - n_kept)
            n_spare -= len(draft.tokens)
            entries.append(PlanEntry(slot, slot.n_to_decode, draft))
        return entries + self._prompt_entries(prompts, min(n_spare, self._n_prompt(generating, prompts)))

    def _prompt_entries(self, prompts: list[Slot], n_spare: int) -> list[PlanEntry]:
        """One prompt after the other: a few tokens of another cost as much attention as a tile of 64."""
        entries = []
        for slot in prompts:
            n_fed = min(slot.n_to_next_checkpoint, n_spare)
            if n_fed:
                entries.append(PlanEntry(slot, n_fed))
            n_spare -= n_fed
        return entries

    # Commit: what the logits mean

    def _commit_entry(
        self, entry: PlanEntry, rows: NDArray[np.float32], now: float, *, can_roll_back: bool
    ) -> list[SequenceEvent]:
        slot, sequence = entry.slot, entry.slot.sequence
        assert sequence
        self._slots.add_decoded(slot, entry.n_fed, entry.draft.tokens, can_roll_back=can_roll_back)
        events: list[SequenceEvent] = []
        if sequence.options.progress and sequence.n_generated == 0:
            events.append(_progress(slot, sequence))
        if len(rows) == 0:  # a prompt chunk that does not reach the end
            return events
        if sequence.max_tokens == 0:
            return [*events, self._finish(slot, "length")]
        return events + self._take(self._verifier.begin(slot, entry.draft, rows), now)

    def _take(self, outcomes: Iterable[SlotOutcome], now: float) -> list[SequenceEvent]:
        """Commit what was verified, before the next one is looked at; end what cannot go on."""
        events: list[SequenceEvent] = []
        for slot, outcome in outcomes:
            if isinstance(outcome, Failed):
                events.append(self._fail(slot, outcome))
                continue
            self._slots.commit(slot, outcome.tokens)
            events.append(self._speculation.on_commit(outcome, now))
            assert slot.sequence
            if reason := self._finish_reason(slot.sequence):
                events.append(self._finish(slot, reason))
        return events

    def _finish_reason(self, sequence: EngineSequence) -> FinishReason | None:
        if sequence.tokens[-1] in self._end_tokens:
            return "stop"
        return "length" if sequence.is_complete(self._limits.n_ctx_sequence) else None

    def _finish(self, slot: Slot, reason: FinishReason) -> Finished:
        return Finished(sequence=self._end(slot), reason=reason)

    def _fail(self, slot: Slot, failure: Failed) -> Failed:
        """One sequence's failure does not affect the others."""
        self._slots.discard_draft(slot)
        self._end(slot)
        return failure

    def _end(self, slot: Slot) -> str:
        sequence = slot.sequence
        assert sequence
        self._slots.release(slot)
        self._speculation.close(sequence.id)
        return sequence.id


def _begin_sampler(slot: Slot) -> None:
    """Its grammar can be compiled while the prompt is decoded; an error shows with the first choice."""
    with contextlib.suppress(Exception):
        assert slot.sequence
        assert slot.sequence.sampler


def _progress(slot: Slot, sequence: EngineSequence) -> PromptProgress:
    return PromptProgress(
        sequence=sequence.id,
        n_processed=min(len(slot.cache), sequence.n_prompt),
        n_total=sequence.n_prompt,
        n_cached=sequence.n_cached,
    )
