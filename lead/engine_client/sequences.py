"""The sequences in progress, with the front's only record of each.

Connections to backs read the committed tokens with cursors of their own, so a slow back costs no memory.
Other data of a step is dropped once the client's stream has taken it. So an answer, which may go on for days,
costs four bytes per token. Tokens are append-only.

A sequence does not depend on the engine process that ran it: its tokens are a function of seed, position and
the tokens before. When the process dies, the next process gets the sequence with all its tokens, and
continues the same text.

A sequence may kill every process that gets it, but other sequences must not fail with it. Such a sequence
kills each process at the same token, so a death is counted against sequences that had generated almost
nothing in that process. Sequences with two counted deaths are given to the next process one at a time, before
all others.
"""

import asyncio
import logging
import secrets
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lead.engine.commands import Submit
from lead.engine.events import (
    Committed,
    Failed,
    Finished,
    FinishReason,
    PromptProgress,
    SequenceEvent,
    Started,
)
from shared.errors import DuoError, NotServingError, RequestError, ServerError, UnavailableError
from shared.protocol import Draft

log = logging.getLogger("lead")

_SUSPECT_DEATHS = 2
_SETTLED_TOKENS = 16
"""A sequence that generated this many tokens in a process is past a token that killed the last process."""


class Broadcast:
    """Wakes all tasks that wait for a change.

    To miss no change, call `next_change()`, then look at the state, then wait for the event.
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def next_change(self) -> asyncio.Event:
        """Return an event that the next `notify` sets."""
        return self._event

    def notify(self) -> None:
        self._event.set()
        self._event = asyncio.Event()


@dataclass(slots=True)
class LiveSequence:
    """A sequence in progress, as the front knows it: the request, and the tokens so far.

    tokens: prompt and answer without the rows of images; drafts and events count positions in `tokens`.
    n_prompt includes the rows. Times are in seconds of one clock. The sequence waits for its first slot until
    `started_at`. It ends with either a `finish_reason` or a `failure`.
    """

    request: Submit
    private: bool = False  # not sent to backs
    tokens: "array[int]" = field(init=False)
    steps: list[Committed] = field(default_factory=list)  # steps that its stream has not taken yet
    progress: list[PromptProgress] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    failure: DuoError | None = None
    n_cached: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    drafted_by: Counter[str] = field(default_factory=Counter)  # tokens, by source
    accepted_by: Counter[str] = field(default_factory=Counter)
    slot: int | None = None  # where it runs, or last ran before it was preempted
    in_slot_since: float = 0.0
    created_at: float = 0.0
    started_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    step_seconds: float | None = None  # of the last step; None before the second one
    n_first: int = 0  # tokens of the first step, which ended at first_token_at
    n_submitted: int | None = None  # its length when this engine process got it; None: not yet
    n_deaths: int = 0  # of engine processes, counted against it
    held_drafts: dict[str, Draft] = field(default_factory=dict)  # drafts that wait for the engine, by source
    changed: Broadcast = field(default_factory=Broadcast)

    def __post_init__(self) -> None:
        self.tokens = array("i", self.request.text)

    @property
    def id(self) -> str:
        return self.request.sequence

    @property
    def n_prompt(self) -> int:
        return len(self.request.tokens)

    @property
    def generated(self) -> "array[int]":
        """The tokens generated so far."""
        return self.tokens[self.request.n_text_prompt :]

    @property
    def n_generated(self) -> int:
        return len(self.tokens) - self.request.n_text_prompt

    @property
    def n_tokens(self) -> int:
        """The length of the whole text including the rows of images, as it counts for the context."""
        return self.n_prompt + self.n_generated

    @property
    def is_waiting(self) -> bool:
        """True if the sequence has not had a slot yet."""
        return self.started_at is None

    @property
    def ended(self) -> bool:
        return self.finish_reason is not None or self.failure is not None

    @property
    def has_settled(self) -> bool:
        """True if it has generated enough tokens to show that it does not kill the present engine process."""
        return self.n_submitted is not None and len(self.tokens) - self.n_submitted >= _SETTLED_TOKENS

    @property
    def age(self) -> tuple[bool, float]:
        """A sort key: started sequences first, by the time of their start, then the others by
        creation time.
        """
        return self.is_waiting, self.created_at if self.started_at is None else self.started_at

    def submission(self) -> Submit:
        """Return the command with which an engine process begins or continues the sequence."""
        return self.request.model_copy(
            update={
                "tokens": [*self.request.tokens, *self.generated],
                "n_prompt": self.n_prompt,
                "n_cached": None if self.is_waiting else self.n_cached,
            }
        )

    def start(self, event: Started, now: float) -> None:
        """Record that the sequence got a slot; only the first slot counts for the statistics."""
        self.slot, self.in_slot_since = event.slot, now
        if not event.again:
            self.started_at, self.n_cached = now, event.n_cached

    def report(self, progress: PromptProgress, now: float) -> None:
        """Record how much of the prompt has been read, and set the seconds since the start.

        A sequence that reads its prompt again, after a restart or a preemption, reports only new progress.
        """
        if not self.progress or progress.n_processed > self.progress[-1].n_processed:
            started_at = now if self.started_at is None else self.started_at
            seconds = now - started_at if progress.n_processed > progress.n_cached else 0.0
            self.progress.append(progress.model_copy(update={"seconds": seconds}))

    def append(self, step: Committed, now: float) -> None:
        if step.start != len(self.tokens):
            raise RuntimeError(
                f"sequence {self.id}: step starts at {step.start}, expected {len(self.tokens)}"
            )
        self.tokens.extend(step.tokens)
        self.steps.append(step)
        self.n_drafted += step.n_drafted
        self.n_accepted += step.n_accepted
        self.drafted_by.update(step.sources)
        self.accepted_by.update(step.sources[: step.n_accepted])
        self.step_seconds = None if self.last_token_at is None else now - self.last_token_at
        self.last_token_at = now
        if self.first_token_at is None:
            self.first_token_at, self.n_first = now, len(step.tokens)

    def take_steps(self) -> list[Committed]:
        """Return the steps since the last call, in order; only for the sequence's stream."""
        steps, self.steps = self.steps, []
        return steps


class Observer(Protocol):
    """An observer, called for the changes of sequences, in the order of the changes."""

    def on_step(self, sequence: LiveSequence, step: Committed) -> None:
        """Handle committed tokens."""

    def on_end(self, sequence: LiveSequence) -> None:
        """Handle the end of a sequence, finished or failed."""


class Sequences:
    """All sequences that have not ended, and which of them the engine process has."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, max_restarts: int = 0) -> None:
        """`clock` returns seconds; times given to `apply` must be of this clock.

        A sequence fails when more than `max_restarts` deaths of engine processes are counted against it.
        """
        self.n_deaths = 0
        """The number of engine processes that have died."""
        self.n_resumed = 0
        """The number of times that a started sequence was given to another engine process."""
        self._max_restarts = max_restarts
        self._suspect: LiveSequence | None = None  # submitted last, alone
        self._clock = clock
        self._live: dict[str, LiveSequence] = {}
        self._observers: list[Observer] = []
        self._on_create: list[Callable[[LiveSequence], None]] = []

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[LiveSequence]:
        """Iterate over the sequences in progress, the oldest first."""
        return iter(self._live.values())

    def observe(self, observer: Observer) -> None:
        self._observers.append(observer)

    def on_create(self, callback: Callable[[LiveSequence], None]) -> None:
        self._on_create.append(callback)

    def get(self, sequence_id: str) -> LiveSequence | None:
        return self._live.get(sequence_id)

    def create(
        self, request: Submit, *, private: bool = False, changed: Broadcast | None = None
    ) -> LiveSequence:
        """Create a sequence for `request`, with an unguessable id that is never used again.

        private: do not send it to backs. changed: notified of its changes; several sequences may share it.
        """
        request = request.model_copy(update={"sequence": secrets.token_hex(16)})
        sequence = LiveSequence(request, private, created_at=self._clock(), changed=changed or Broadcast())
        self._live[sequence.id] = sequence
        for callback in self._on_create:
            callback(sequence)
        return sequence

    def apply(self, event: SequenceEvent, now: float) -> None:
        """Process an event of the engine; events of sequences cancelled meanwhile are ignored."""
        sequence = self._live.get(event.sequence)
        if sequence is None:
            return
        match event:
            case Started():
                sequence.start(event, now)
            case PromptProgress():
                sequence.report(event, now)
            case Committed():
                sequence.append(event, now)
                for observer in self._observers:
                    observer.on_step(sequence, event)
            case Finished():
                sequence.finish_reason = event.reason
                self._end(sequence)
            case Failed():
                sequence.failure = _error(event)
                self._end(sequence)
        sequence.changed.notify()

    def discard(self, sequence: LiveSequence) -> None:
        """Forget a sequence that no stream reads any longer; does nothing if it has ended."""
        if sequence.id in self._live:
            sequence.finish_reason = "stop"
            self._end(sequence)

    def fail(self, sequence: LiveSequence, error: DuoError) -> None:
        sequence.failure = error
        self._end(sequence)
        sequence.changed.notify()

    def fail_all(self, reason: str) -> None:
        """End all sequences in progress with a failure."""
        for sequence in list(self):
            self.fail(sequence, NotServingError(reason))

    @property
    def holds_back(self) -> bool:
        """True if sequences are held back until another one has proved not to kill the engine process."""
        return self._suspect is not None

    def take_due(self) -> list[Submit]:
        """Return the submissions to send to the engine process now; call again whenever there may be more."""
        due = self._due()
        for sequence in due:
            sequence.n_submitted = len(sequence.tokens)
        return [sequence.submission() for sequence in due]

    def on_death(self) -> bool:
        """Handle the death of the engine process; return whether a sequence was in a slot."""
        submitted = [each for each in self if each.n_submitted is not None]
        running = [each for each in submitted if each.slot is not None]
        self.n_deaths += 1
        for sequence in _to_blame(submitted, running):
            sequence.n_deaths += 1
            if sequence.n_deaths > self._max_restarts:
                self._give_up(sequence)
        self.n_resumed += sum(not each.ended for each in running)
        self._suspect = None
        for sequence in self:
            sequence.n_submitted = sequence.slot = None
        return bool(running)

    def _due(self) -> Sequence[LiveSequence]:
        if self._suspect and not (self._suspect.ended or self._suspect.has_settled):
            return []
        waiting = sorted((each for each in self if each.n_submitted is None), key=lambda each: each.age)
        suspects = [each for each in waiting if each.n_deaths >= _SUSPECT_DEATHS]
        self._suspect = suspects[0] if suspects else None
        return suspects[:1] or waiting

    def _give_up(self, sequence: LiveSequence) -> None:
        reason = f"the engine died while it processed this request (deaths: {sequence.n_deaths})"
        log.error("sequence %s failed: %s", sequence.id, reason)
        self.fail(sequence, UnavailableError(reason))

    def _end(self, sequence: LiveSequence) -> None:
        del self._live[sequence.id]
        for observer in self._observers:
            observer.on_end(sequence)


def _error(event: Failed) -> DuoError:
    if event.may_recover:
        return UnavailableError(event.reason)
    return ServerError(event.reason) if event.param is None else RequestError(event.reason, event.param)


def _to_blame(submitted: list[LiveSequence], running: list[LiveSequence]) -> list[LiveSequence]:
    """Return the sequences that had just begun to run; if none, all running ones; if none runs, all."""
    return [each for each in running if not each.has_settled] or running or submitted
