"""The engine as a state machine: commands and results go in; the next action and events come out.

It knows no model, pipe or clock. `Loop` drives it with a model, the simulation drives it in virtual time, and
tests drive it by hand. A driver calls `next`, applies the edits of `pop_edits` to the model's memory,
performs the action, and reports the result with `decoded`, `failed` or `drafted`. Events are kept until they
are popped.

Choosing a token under a grammar may take longer than its step. The engine waits for the choice for a share of
the step's time. After that, the sequence sits out the next steps, and the other sequences go on.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lead.engine.commands import MTP, Cancel, Command, SetBacks, SetPolicy, Submit
from lead.engine.engine_limits import EngineLimits
from lead.engine.events import Event, Failed, Finished, FinishReason, PromptProgress
from lead.engine.scheduler import Action, PlanEntry, Scheduler, StepPlan
from lead.engine.sequence import EngineSequence, Verification
from lead.engine.slot import Slot
from lead.engine.slot_manager import SlotManager
from lead.engine.speculation.manager import DraftRound, SpeculationManager
from lead.engine.speculation.policy import DraftOrder, Wait
from lead.engine.speculation.speculation_stats import StepReport
from shared.cache_edits import CacheEdit, moved_texts
from shared.errors import KvCacheFullError, WindowLostError
from shared.protocol import Draft
from shared.sampling.grammar_budget import GrammarBudget
from shared.sampling.sampler import Sampler
from shared.slot_cache import cut_length

log = logging.getLogger("engine")

_N_GENERATION_PROMPT = 8
"""The approximate maximum number of tokens at a prompt's end that chat templates leave out in later turns."""
_MIN_CHECKPOINT = 64
"""Shorter prompts get no checkpoint: decoding them again is as quick as storing one."""
_GRAMMAR_SHARE = 0.25
"""The share of a step's time that waiting for grammars may add."""
_MIN_GRAMMAR_SECONDS = 0.001
"""The minimum time to wait for grammars; a usual choice takes a tenth of it."""
_ALONE_GRAMMAR_SECONDS = 0.005
"""The time to wait for grammars when nothing else runs, before commands are looked at again."""


class Engine:
    """The engine's state machine. `now` is always in seconds of the monotonic clock that stamps drafts."""

    def __init__(
        self,
        limits: EngineLimits,
        speculation: SpeculationManager,
        make_sampler: Callable[[Submit], Sampler],
        end_tokens: frozenset[int],
        budget: GrammarBudget | None = None,
    ) -> None:
        """Make an idle engine.

        Raises ValueError if the batch has no room for a token of each slot, or the cache has no room for one
        sequence.
        """
        if limits.n_batch < limits.n_slots:
            raise ValueError("a batch must have room for one token of every slot")
        if limits.n_ctx_sequence > limits.n_ctx + 1:  # the last token of a sequence is never decoded
            raise ValueError("the cache must have room for one whole sequence")
        self.speculation = speculation
        self._limits = limits
        self._make_sampler = make_sampler
        self._end_tokens = end_tokens
        self._budget = budget or GrammarBudget()
        self.slots = SlotManager(limits)
        self._scheduler = Scheduler(limits, self.slots, speculation)
        self._events: list[Event] = []
        self._uncounted: list[Verification] = []  # committed, but not events yet
        self._edits: list[CacheEdit] = []  # to be applied before the next step
        self._last_step: Callable[[], StepReport] | None = None  # if nothing was learned from it yet
        self._waiting_since: float | None = None  # for drafts, or None
        self._n_windows_lost = 0  # slots whose texts were processed again (WindowLostError)

    @property
    def idle(self) -> bool:
        """True if there is nothing to do until a command arrives."""
        return not self.slots.sequences

    def apply(self, command: Command, now: float) -> None:
        """Apply a command; raises AssertionError for one that is not for a running engine."""
        match command:
            case Submit():
                self._submit(command, now)
            case Cancel():  # one that is unknown has ended already
                if sequence := self.slots.sequences.get(command.sequence):
                    self.slots.forget_last_image(sequence)
                    self._end(sequence)
            case Draft():
                self.speculation.post_draft(self.slots.sequences.get(command.sequence), command)
            case SetBacks():
                self.speculation.connect(command.names, self.slots.sequences.values())
            case SetPolicy():
                self.speculation.set_policy(command.policy, command.depth)
            case _:
                raise AssertionError(f"not a command for a running engine: {command}")

    def next(self, now: float) -> Action | None:
        """Return the next action; None: wait for a command."""
        if self._waiting_since is not None:
            self.speculation.on_wait(now - self._waiting_since)
            self._waiting_since = None
        running = self.slots.running()
        if waiting := [slot for slot in running if slot.is_waiting]:
            is_alone = len(waiting) == len(running)
            self._verify_waiting(waiting, _ALONE_GRAMMAR_SECONDS if is_alone else 0.0, now)
        self.slots.shift_contexts()
        self._admit()
        self.slots.make_room_for_one_token_each()
        action = None if self.idle else self._scheduler.plan(now)
        self._edits += self.slots.pop_edits(decodes=isinstance(action, StepPlan))
        if isinstance(action, StepPlan):
            drafting = (entry.slot_state for entry in action.entries if entry.draft)
            self._edits += self.slots.save_before_drafts(drafting)
        elif isinstance(action, Wait) and action.seconds > 0:
            self._waiting_since = now
        return action

    def decoded(
        self, plan: StepPlan, logits: Sequence[NDArray[np.float32]], now: float, seconds: float
    ) -> None:
        """Process the logits of a decoded plan: one array of shape (n_logits, n_vocab) per span.

        seconds: how long decoding took.
        """
        self._scheduler.learn(plan, seconds)
        self._budget.set(0.0)  # choices that are ready come first
        can_roll_back, n_committed = plan.layout.can_roll_back, 0
        for entry, rows in zip(plan.entries, logits, strict=True):
            n_committed += self._commit_entry(entry, rows, now, can_roll_back=entry.slot in can_roll_back)
        is_usual = True
        if waiting := [entry.slot_state for entry in plan.entries if entry.slot_state.is_waiting]:
            max_seconds = max(_MIN_GRAMMAR_SECONDS, _GRAMMAR_SHARE * seconds)
            n_committed += self._verify_waiting(waiting, max_seconds, now)
            for slot in waiting:
                if slot.sequence and (verification := slot.sequence.verification):
                    is_usual = False
                    verification.rows = verification.rows.copy()  # the model reuses their memory
        self._last_step = partial(plan.report, now, seconds, n_committed, is_usual=is_usual)

    def edited(self, edits: Sequence[CacheEdit], seconds: float) -> None:
        """Record that applying the edits of `pop_edits` took `seconds`."""
        if texts := moved_texts(edits):
            self.slots.learn_moves(texts, seconds, self.speculation.cost.seconds(1))

    def failed(self, error: KvCacheFullError | WindowLostError) -> None:
        """Handle a plan that could not be decoded.

        Makes room in the cache, or processes the texts of the affected slots again.
        """
        if isinstance(error, KvCacheFullError):
            log.warning("%s: making room", error)
            self._make_room(error.lost)
            return
        self._n_windows_lost += len(error.slots)
        level = logging.WARNING if self._n_windows_lost == len(error.slots) else logging.DEBUG
        log.log(
            level, "%s: the engine processes these texts again (lost so far: %d)", error, self._n_windows_lost
        )
        self.slots.empty(error.slots)

    def draft(self, order: DraftOrder) -> DraftRound:
        """Run one round of the inline drafter; call `drafted` afterwards."""
        return self.speculation.draft(order)

    def drafted(self, done: DraftRound, seconds: float) -> None:
        """Record that the round of `draft` took `seconds`."""
        self.speculation.on_drafted(done, seconds)

    def pop_events(self) -> list[Event]:
        """Return the events since the last call.

        Call it between two steps, or while the next step is computed. This call also lets speculation learn
        from the last step, so that the next step on a device need not wait for the learning.
        """
        self._count_committed()
        events, self._events = self._events, []
        if report := self._last_step:
            self._last_step = None
            self.speculation.on_step(report())
            events += self.speculation.pop_events()
        return events

    def pop_edits(self) -> list[CacheEdit]:
        """Return the edits that make the model's memory match the records; apply them before the action."""
        edits, self._edits = self._edits, []
        return edits

    def explain(self) -> dict[str, Any]:
        """Return the planner's statistics and learned values, as JSON."""
        return self.speculation.describe() | {"n_windows_lost": self._n_windows_lost}

    def check_integrity(self) -> None:
        """Raise AssertionError unless the records of slots and of drafts are consistent."""
        self.slots.check_integrity()
        for sequence in self.slots.sequences.values():
            sequence.drafts.check_integrity()

    def _report(self, event: Event) -> None:
        """Add an event, after the events of tokens that were committed before it."""
        self._count_committed()
        self._events.append(event)

    def _count_committed(self) -> None:
        self._events += [self.speculation.count(each) for each in self._uncounted]
        self._uncounted.clear()

    # How a sequence begins

    def _submit(self, request: Submit, now: float) -> None:
        """Queue a sequence, which starts when a slot is free. The prompt must leave room for one token.

        If an earlier engine process generated the whole answer but ended before it reported the end, finish
        the sequence.
        """
        if request.images and (reason := self._why_no_images(request)):
            self._report(Failed(sequence=request.sequence, reason=reason, param="messages"))
            return
        n_ctx = self._limits.n_ctx_sequence
        sequence = EngineSequence(request, n_ctx, self._make_sampler, self._checkpoints(request))
        if sequence.n_generated and (reason := self._finish_reason(sequence)):
            self._report(Finished(sequence=sequence.id, reason=reason))
            return
        assert 0 < len(sequence.context) < n_ctx
        self.speculation.open(sequence, now)
        self.slots.add(sequence)

    def _why_no_images(self, request: Submit) -> str | None:
        """Return why the images of a request cannot be read here; None: they can."""
        inline, n_ubatch = self.speculation.inline, self._limits.n_ubatch
        if request.n_keep is not None:
            return "a context with images cannot be shifted. Start the lead without --context-shift"
        if self._limits.batch_sizes:
            return "images cannot be combined with --exact. Start the lead with --exact off"
        if inline and inline.drafter.source == MTP:
            return "images cannot be combined with MTP heads. Start the lead with --mtp off"
        if request.images[-1].end == (request.n_prompt or len(request.tokens)):
            return "a prompt must end with text, not with an image"
        n_rows = max((image.n_rows for image in request.images if image.whole), default=0)
        if n_rows > n_ubatch:
            return f"an image needs a batch of {n_rows} tokens. Start the lead with --ubatch-size {n_rows}"
        return None

    def _checkpoints(self, request: Submit) -> tuple[int, ...]:
        """Return the lengths at which the states of a prompt are stored.

        The default is the length without the answer's beginning at the prompt's end. A later turn of a chat
        has the same tokens up to there, but perhaps another beginning of the answer. Another length is
        `n_keep`, so that the tokens that a context shift keeps need not be decoded again.
        """
        if self._limits.n_checkpoints == 0:
            return ()
        n_prompt = request.n_prompt or len(request.tokens)
        lengths = {n for n in [*request.checkpoints, request.n_keep or 0] if 0 < n < n_prompt}
        if n_prompt >= _MIN_CHECKPOINT and not request.checkpoints:
            lengths.add(n_prompt - _N_GENERATION_PROMPT)
        return tuple(sorted({cut_length(request.tokens, n) for n in lengths} - {0}))

    def _admit(self) -> None:
        """Start waiting sequences, and make their samplers, so that grammars compile while prompts are
        decoded.

        If progress was requested, report the cached tokens before anything is decoded.
        """
        for started in self.slots.admit(only_if_idle=self._scheduler.is_minimal):
            self._report(started)
            sequence = self.slots.sequences[started.sequence]
            with contextlib.suppress(Exception):  # an error shows with the first choice
                assert sequence.sampler
            if not started.again:
                self._report_progress(sequence, started.n_cached)

    # What a step's logits mean

    def _commit_entry(
        self, entry: PlanEntry, rows: NDArray[np.float32], now: float, *, can_roll_back: bool
    ) -> int:
        """Commit the tokens chosen from one slot's logits; return their number."""
        slot, sequence = entry.slot_state, entry.slot_state.sequence
        assert sequence
        self.slots.add_decoded(slot, entry.tokens, has_draft=bool(entry.draft), can_roll_back=can_roll_back)
        if sequence.n_generated == 0:
            self._report_progress(sequence, len(slot.cache))
        if len(rows) == 0:  # a prompt chunk that does not reach the end
            return 0
        if sequence.request.max_tokens == 0:
            self._finish(sequence, "length")
            return 0
        sequence.verification = Verification(sequence.drafts, len(sequence.text), entry.draft, rows)
        return self._verify(slot, now)

    def _verify_waiting(self, waiting: Sequence[Slot], seconds: float, now: float) -> int:
        """Commit tokens that were not chosen in time, waiting up to `seconds`; return the number committed.

        Each slot gets an equal part of the time.
        """
        n_committed = 0
        for slot in waiting:
            self._budget.set(seconds / len(waiting))
            if slot.sequence and slot.sequence.sampler.is_ready:
                n_committed += self._verify(slot, now)
        return n_committed

    def _verify(self, slot: Slot, now: float) -> int:
        """Commit the chosen tokens, if they are ready; return their number.

        Ends a sequence that cannot continue.
        """
        sequence = slot.sequence
        assert sequence
        outcome = sequence.verify(self._end_tokens)
        if outcome is None:
            return 0
        if isinstance(outcome, Failed):  # the others go on
            self._report(outcome)
            self.slots.discard_draft(slot)
            self._end(sequence)
            return 0
        self.slots.commit(slot, outcome.tokens)
        self.speculation.on_commit(outcome, now)
        self._uncounted.append(outcome)
        if reason := self._finish_reason(sequence):
            self._finish(sequence, reason)
        return len(outcome.tokens)

    def _report_progress(self, sequence: EngineSequence, n_cached: int) -> None:
        if sequence.request.progress:
            self._report(
                PromptProgress(
                    sequence=sequence.id,
                    n_processed=min(n_cached, sequence.n_prompt),
                    n_total=sequence.n_prompt,
                    n_cached=sequence.n_cached or 0,
                )
            )

    # How a sequence ends

    def _make_room(self, lost: Sequence[int]) -> None:
        """Free cells after the cache had no room for a plan, although the records show room.

        lost: the slots that the model has emptied. An idle slot is emptied, and the next step decodes one
        token of each running sequence. If that fails when all idle slots are empty, the youngest sequence is
        preempted. A sequence that runs alone ends.
        """
        self.slots.mark_lost(lost)
        was_minimal, self._scheduler.is_minimal = self._scheduler.is_minimal, True
        if self.slots.evict_idle() or not was_minimal:
            return
        running = self.slots.running()
        if len(running) > 1:
            self.slots.preempt(running[-1])
            return
        for slot in running:
            assert slot.sequence
            self._finish(slot.sequence, "length")

    def _finish_reason(self, sequence: EngineSequence) -> FinishReason | None:
        if sequence.tokens[-1] in self._end_tokens:
            return "stop"
        return "length" if sequence.is_complete else None

    def _finish(self, sequence: EngineSequence, reason: FinishReason) -> None:
        self._report(Finished(sequence=sequence.id, reason=reason))
        self._end(sequence)

    def _end(self, sequence: EngineSequence) -> None:
        self.slots.remove(sequence)
        self.speculation.close(sequence)
