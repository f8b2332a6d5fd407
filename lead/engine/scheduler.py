"""The scheduler: which tokens of which sequences go into the next step, and what the step's logits mean.

Continuous batching: every step is one decode over all running sequences, prompt chunks beside generation.
Knows no model and no clock: logits and times are passed in; it is tested with a fake model in milliseconds.
"""

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lead.engine.commands import PolicyName, PostDraft, Submit
from lead.engine.edit import Edit
from lead.engine.events import (
    Committed,
    DraftsDropped,
    Failed,
    Finished,
    FinishReason,
    PromptProgress,
    Started,
    TokenProbabilities,
    Tuned,
)
from lead.engine.probabilities import filtered_probabilities, model_probabilities
from lead.engine.slot import EngineSequence, Slot
from lead.engine.slots import Slots
from lead.engine.speculation.board import NOTHING, Proposal
from lead.engine.speculation.planner import Step
from lead.engine.speculation.speculation import Decision, Speculation
from lead.engine.verify import Verdict, verify
from shared.errors import GrammarTooSlowError
from shared.llama.span import Span, fillers
from shared.sampling.sampler import Sampler

SchedulerEvent = Started | PromptProgress | Committed | Finished | Failed | DraftsDropped | Tuned

log = logging.getLogger("engine")


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
    n_ctx_slot: int | None = None  # where slots have cells of their own


@dataclass(frozen=True, slots=True)
class Entry:
    """A slot's part of a step: `n_fed` committed tokens not yet in the cache, then the draft.

    Logits exist only where the committed tokens are fed to their end.
    """

    slot: Slot
    n_fed: int
    draft: Proposal = NOTHING


@dataclass(frozen=True, slots=True)
class Plan:
    """A step: carry out `edits` of the cache, then decode `spans` (one per entry).

    `news`: what planning it has already settled. `expected`: how many tokens it should commit; None with
    prompts in the batch. With `wait` > 0 there is nothing to decode yet: plan again when a command has
    arrived, or after so many seconds. `n_fillers`: tokens that the model adds (`shared.llama.span.fillers`).
    """

    news: list[Started | PromptProgress]
    edits: list[Edit]
    entries: list[Entry]
    spans: list[Span]
    wait: float = 0.0
    expected: float | None = None
    n_fillers: int = 0

    @property
    def n_tokens(self) -> int:
        """In its batch."""
        return sum(len(span.tokens) for span in self.spans) + self.n_fillers


class Scheduler:
    """`plan` and `commit` alternate; `submit`, `cancel` and drafts come in between.

    `now` is always seconds of one monotonic clock.
    """

    def __init__(
        self,
        limits: Limits,
        speculation: Speculation,
        make_sampler: Callable[[Submit], Sampler],
        end_tokens: frozenset[int],
    ) -> None:
        if limits.n_batch < limits.n_slots:
            raise ValueError("a batch must have room for one token of every slot")
        if limits.n_ctx_sequence > limits.n_ctx + 1:  # the last token of a sequence is never decoded
            raise ValueError("the cache must have room for one whole sequence")
        self._limits = limits
        self._speculation = speculation
        self._make_sampler = make_sampler
        self._end_tokens = end_tokens
        can_copy = limits.can_trim and limits.n_ctx_slot is None  # llama.cpp copies between pools only whole
        self._slots = Slots(limits.n_slots, limits.n_ctx, can_trim=limits.can_trim, can_copy=can_copy)
        self._frugal = False  # the last plan found no room: the next takes as little as it can

    @property
    def idle(self) -> bool:
        """Nothing to do until a command arrives."""
        return self._slots.idle

    def submit(self, request: Submit, now: float) -> None:
        """Queue a sequence; it starts when a slot is free. The prompt must leave room for one token."""
        assert 0 < len(request.tokens) < self._limits.n_ctx_sequence
        sequence = EngineSequence(
            request.sequence,
            list(request.tokens),
            functools.partial(self._make_sampler, request),
            request.max_tokens,
            options=request.options,
        )
        self._speculation.open(request, now)
        self._slots.enqueue(sequence)

    def cancel(self, sequence_id: str) -> None:
        """Stop a sequence, wherever it is; one that is unknown has ended already."""
        self._speculation.close(sequence_id)
        self._slots.remove(sequence_id)

    def post_draft(self, draft: PostDraft) -> None:
        """Put a draft on the board."""
        self._speculation.post(draft, self._slots.tokens_of(draft.sequence))

    def connect(self, sources: Sequence[str]) -> None:
        """These backs are connected now."""
        self._speculation.connect(sources)

    def set_policy(self, policy: PolicyName, depth: int) -> None:
        """Choose depths in another way from now on."""
        self._speculation.set_policy(policy, depth)

    def waited(self, seconds: float) -> None:
        """The engine waited for drafts, because a plan said so."""
        self._speculation.learn_wait(seconds)

    def describe(self) -> dict[str, Any]:
        """What speculation has learned and done."""
        return self._speculation.describe()

    def plan(self, now: float) -> Plan | None:
        """The next step, or None if there is nothing to do."""
        news = self._tell_progress(self._slots.admit(nobody_new=self._frugal))
        self._slots.make_room_for_one_token_each()
        running = self._slots.running()
        if not running:
            return None
        generating = [slot for slot in running if slot.n_todo == 1]
        prompts = [slot for slot in running if slot.n_todo > 1]
        n_prompt = self._n_prompt(generating, prompts)
        decision = self._decide(generating, n_prompt, now)
        if decision.wait > 0:
            return Plan(news, [], [], [], decision.wait)
        entries = self._entries(generating, decision.proposals, prompts)
        expected = None if prompts else decision.expected
        spans = [_span(entry) for entry in entries]
        return Plan(news, self._slots.take_edits(), entries, spans, 0.0, expected, self._n_fillers(spans))

    def commit(
        self, plan: Plan, logits: Sequence[NDArray[np.float32]], now: float, seconds: float
    ) -> list[SchedulerEvent]:
        """Take in a decoded plan's logits, one array of shape (n_logits, n_vocab) per span.

        Decoding took `seconds`.
        """
        self._frugal = False
        events: list[SchedulerEvent] = []
        for entry, rows in zip(plan.entries, logits, strict=True):
            events += self._commit_entry(entry, rows, now)
        depths = [
            len(entry.draft.tokens) for entry, rows in zip(plan.entries, logits, strict=True) if len(rows)
        ]
        n_committed = sum(len(event.tokens) for event in events if isinstance(event, Committed))
        self._speculation.learn_step(Step(plan.n_tokens, seconds, depths, n_committed, plan.expected))
        events += [
            DraftsDropped(source=source, n_stale=n) for source, n in self._speculation.take_stale().items()
        ]
        tuned = self._speculation.take_tuned()
        return events if tuned is None else [*events, tuned]

    def shed(self) -> list[SchedulerEvent]:
        """The cache had no room for a plan although the count said so: give something up.

        The next step takes one token of each sequence and nobody new. Beside that go the caches of idle
        slots, then the youngest sequence's place; the last one left ends.
        """
        was_frugal, self._frugal = self._frugal, True
        if self._slots.evict_idle() or not was_frugal:
            return []
        running = self._slots.running()
        if len(running) > 1:
            self._slots.preempt(running[-1])
            return []
        return [self._finish(slot, "length") for slot in running]

    def check_integrity(self) -> None:
        """Raise AssertionError unless the books are right."""
        self._slots.check_integrity()
        self._speculation.check_integrity(set(self._slots.ids))

    # Plan: what each slot decodes

    def _tell_progress(self, started: list[Started]) -> list[Started | PromptProgress]:
        """Who wants to know hears of what was cached before anything is decoded."""
        news: list[Started | PromptProgress] = []
        slots = {slot.index: slot for slot in self._slots.running()} if started else {}
        for event in started:
            news.append(event)
            slot = slots[event.slot]
            if not event.again and slot.sequence and slot.sequence.options.progress:
                news.append(_progress(slot, slot.sequence))
        return news

    def _n_prompt(self, generating: list[Slot], prompts: list[Slot]) -> int:
        """About how many tokens of prompts will be in the batch."""
        n_most = (
            min(self._limits.n_batch, self._limits.n_prompt_chunk) if generating else self._limits.n_batch
        )
        return min(sum(slot.n_todo for slot in prompts), len(prompts) + n_most)

    def _n_fillers(self, spans: Sequence[Span]) -> int:
        limits = self._limits
        if limits.n_ctx_slot is None or not limits.can_trim:
            return 0
        return sum(fillers(spans, limits.n_batch, limits.n_ctx_slot))

    def _decide(self, generating: list[Slot], n_prompt: int, now: float) -> Decision:
        if not self._limits.can_trim or self._frugal:
            return Decision([NOTHING] * len(generating), 0.0, len(generating))
        running = [
            (slot.sequence, slot.sequence.n_useful(self._limits.n_ctx_sequence))
            for slot in generating
            if slot.sequence
        ]
        return self._speculation.decide(running, n_prompt, now)

    def _entries(self, generating: list[Slot], proposals: list[Proposal], prompts: list[Slot]) -> list[Entry]:
        # Every running slot has one place in the batch for certain; the rest goes to drafts, then to prompts.
        n_running = len(generating) + len(prompts)
        n_wanted = n_running
        if not self._frugal:
            n_wanted += sum(len(p.tokens) for p in proposals) + sum(slot.n_todo - 1 for slot in prompts)
        n_spare = min(self._limits.n_batch, self._slots.free_up_to(n_wanted), n_wanted) - n_running
        entries = []
        for slot, proposal in zip(generating, proposals, strict=True):
            draft = proposal.cut(n_spare)
            n_spare -= len(draft.tokens)
            entries.append(Entry(slot, 1, draft))
        if generating:
            n_spare = min(n_spare, self._limits.n_prompt_chunk)
        for slot in prompts:
            n_more = min(slot.n_todo - 1, n_spare)
            n_spare -= n_more
            entries.append(Entry(slot, 1 + n_more))
        return entries

    # Commit: what the logits mean

    def _commit_entry(self, entry: Entry, rows: NDArray[np.float32], now: float) -> list[SchedulerEvent]:
        slot, sequence = entry.slot, entry.slot.sequence
        assert sequence
        n_before = len(slot.cache)
        draft = entry.draft.tokens
        slot.cache.add([*sequence.tokens[n_before : n_before + entry.n_fed], *draft])
        news: list[SchedulerEvent] = []
        if sequence.options.progress and sequence.n_generated == 0:
            news.append(_progress(slot, sequence))
        if len(rows) == 0:  # a prompt chunk that does not reach the end
            return news
        if sequence.max_tokens == 0:
            return [*news, self._finish(slot, "length")]
        start = len(sequence.tokens)
        try:
            verdict, probabilities = self._verify(sequence, draft, rows)
        except GrammarTooSlowError as error:
            return [*news, self._fail(slot, str(error), "grammar")]
        except Exception:
            log.exception("sequence %s cannot go on", sequence.id)
            return [*news, self._fail(slot, "a token could not be chosen; the log says why", None)]
        sequence.tokens += verdict.tokens
        # The last committed token is never in the cache: it is fed in the next step.
        slot.cache.keep(len(sequence.tokens) - 1)
        committed = Committed(
            sequence=sequence.id,
            start=start,
            tokens=verdict.tokens,
            n_accepted=verdict.n_accepted,
            rejected=list(draft[verdict.n_accepted :]),
            sources=list(entry.draft.sources),
            probabilities=probabilities,
        )
        self._speculation.extend(sequence.id, committed, now)
        reason = self._finish_reason(sequence)
        news.append(committed)
        return news if reason is None else [*news, self._finish(slot, reason)]

    def _verify(
        self, sequence: EngineSequence, draft: Sequence[int], rows: NDArray[np.float32]
    ) -> tuple[Verdict, list[TokenProbabilities]]:
        """What the sequence's own choices make of a draft, and their probabilities where asked for."""
        start = len(sequence.tokens)
        probabilities: list[TokenProbabilities] = []

        def choose(i: int) -> int:
            token = sequence.sampler.choose(rows[i], start + i)
            if sequence.options.n_probs is not None:
                probabilities.append(_probabilities(sequence, rows[i], start + i, token))
            sequence.sampler.accept(token)
            return token

        return verify(draft, choose, self._end_tokens), probabilities

    def _finish_reason(self, sequence: EngineSequence) -> FinishReason | None:
        if sequence.tokens[-1] in self._end_tokens:
            return "stop"
        return "length" if sequence.n_left(self._limits.n_ctx_sequence) <= 0 else None

    def _finish(self, slot: Slot, reason: FinishReason) -> Finished:
        return Finished(sequence=self._end(slot), reason=reason)

    def _fail(self, slot: Slot, reason: str, param: str | None) -> Failed:
        """One sequence's trouble is nobody else's."""
        assert slot.sequence
        slot.cache.keep(len(slot.sequence.tokens))  # not the draft
        return Failed(sequence=self._end(slot), reason=reason, param=param)

    def _end(self, slot: Slot) -> str:
        sequence = slot.sequence
        assert sequence
        self._slots.release(slot)
        self._speculation.close(sequence.id)
        return sequence.id


def _progress(slot: Slot, sequence: EngineSequence) -> PromptProgress:
    return PromptProgress(
        sequence=sequence.id,
        n_processed=min(len(slot.cache), sequence.n_prompt),
        n_total=sequence.n_prompt,
        n_cached=sequence.n_cached,
    )


def _probabilities(
    sequence: EngineSequence, row: NDArray[np.float32], position: int, token: int
) -> TokenProbabilities:
    n = sequence.options.n_probs or 0
    if sequence.options.filtered:
        return filtered_probabilities(sequence.sampler, row, position, token, n)
    return model_probabilities(row, token, n)


def _span(entry: Entry) -> Span:
    slot, n_cached = entry.slot, len(entry.slot.cache)
    tokens = slot.sequence.tokens if slot.sequence else []
    fed = tokens[n_cached : n_cached + entry.n_fed]
    reaches_end = n_cached + entry.n_fed == len(tokens)
    draft = entry.draft.tokens
    return Span(slot.index, n_cached, [*fed, *draft], 1 + len(draft) if reaches_end else 0)
