"""The committed tokens of every sequence: the one place in the front process that holds them.

Streams to clients and connections to backs read them with cursors of their own, so a slow or late reader
costs no memory. Tokens are append-only.
"""

import asyncio
import enum
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from lead.engine.commands import RequestOptions, Submit
from lead.engine.events import (
    Committed,
    Failed,
    Finished,
    FinishReason,
    PromptProgress,
    SequenceEvent,
    Started,
)
from shared.errors import DuoError, NotServingError, RequestError, ServerError
from shared.sampling.parameters import SamplingParameters


class Broadcast:
    """Wakes everyone waiting for a change.

    Take `next_change()` before looking at the state, look, then wait on it: no change is missed.
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def next_change(self) -> asyncio.Event:
        """An event that the next `notify` sets."""
        return self._event

    def notify(self) -> None:
        """Something has changed."""
        self._event.set()
        self._event = asyncio.Event()


class Status(enum.Enum):
    """QUEUED → RUNNING → FINISHED; either of the first two → FAILED."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


_MOVES = {
    Status.QUEUED: {Status.RUNNING, Status.FINISHED, Status.FAILED},
    Status.RUNNING: {Status.FINISHED, Status.FAILED},
}


@dataclass(slots=True)
class LiveSequence:
    """One completion in progress. `steps` are the engine's, in order; times are in seconds of one clock."""

    id: str
    tokens: list[int]
    n_prompt: int
    sampling: SamplingParameters
    private: bool = False  # not sent to backs
    status: Status = Status.QUEUED
    steps: list[Committed] = field(default_factory=list)
    progress: list[tuple[PromptProgress, float]] = field(default_factory=list)  # and when
    finish_reason: FinishReason | None = None
    failure: DuoError | None = None
    n_cached: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    drafted_by: Counter[str] = field(default_factory=Counter)  # tokens, by source
    accepted_by: Counter[str] = field(default_factory=Counter)
    max_tokens: int | None = None  # to generate; None: as many as the context takes, or without end
    prediction: list[int] = field(default_factory=list)
    options: RequestOptions = field(default_factory=RequestOptions)
    n_keep: int | None = None  # tokens that a context shift leaves; None: it ends when the context is full
    slot: int | None = None  # where it runs; after giving way, where it last ran
    in_slot_since: float = 0.0
    created_at: float = 0.0
    started_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    n_first: int = 0  # tokens of the first step, which ended at first_token_at
    changed: Broadcast = field(default_factory=Broadcast)

    @property
    def ended(self) -> bool:
        return self.status in {Status.FINISHED, Status.FAILED}

    def submission(self) -> Submit:
        """What makes an engine process continue it, whether another one had begun it or not."""
        return Submit(
            sequence=self.id,
            tokens=self.tokens,
            sampling=self.sampling,
            max_tokens=self.max_tokens,
            prediction=self.prediction,
            options=self.options,
            n_prompt=self.n_prompt,
            n_cached=None if self.status is Status.QUEUED else self.n_cached,
            n_keep=self.n_keep,
        )

    def move(self, status: Status) -> None:
        """Change status; an illegal move is a bug and raises."""
        if status not in _MOVES.get(self.status, set()):
            raise RuntimeError(f"sequence {self.id}: cannot go from {self.status.value} to {status.value}")
        self.status = status

    def start(self, event: Started, now: float) -> None:
        """It has got a slot; its first one counts for its statistics."""
        self.slot, self.in_slot_since = event.slot, now
        if not event.again:
            self.move(Status.RUNNING)
            self.started_at, self.n_cached = now, event.n_cached

    def report(self, progress: PromptProgress, now: float) -> None:
        """Its prompt has been read so far; when it is read again, what was reported is not repeated."""
        if not self.progress or progress.n_processed > self.progress[-1][0].n_processed:
            self.progress.append((progress, now))

    def append(self, step: Committed, now: float) -> None:
        """Append the tokens of one step."""
        if step.start != len(self.tokens):
            raise RuntimeError(
                f"sequence {self.id}: step starts at {step.start}, expected {len(self.tokens)}"
            )
        self.tokens += step.tokens
        self.steps.append(step)
        self.n_drafted += step.n_drafted
        self.n_accepted += step.n_accepted
        self.drafted_by.update(step.sources)
        self.accepted_by.update(step.sources[: step.n_accepted])
        self.last_token_at = now
        if self.first_token_at is None:
            self.first_token_at, self.n_first = now, len(step.tokens)


class Observer(Protocol):
    """Is notified of what happens to sequences, in order."""

    def on_step(self, sequence: LiveSequence, step: Committed) -> None:
        """Tokens were committed."""

    def on_end(self, sequence: LiveSequence) -> None:
        """A sequence has finished or failed."""


class Sequences:
    """All sequences that have not ended."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds; the times given to `apply` must be of the same clock."""
        self._clock = clock
        self._live: dict[str, LiveSequence] = {}
        self._observers: list[Observer] = []
        self._on_create: list[Callable[[LiveSequence], None]] = []

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[LiveSequence]:
        """The sequences in progress, the oldest first."""
        return iter(self._live.values())

    def observe(self, observer: Observer) -> None:
        """Notify `observer` from now on."""
        self._observers.append(observer)

    def on_create(self, callback: Callable[[LiveSequence], None]) -> None:
        """Call `callback` for each sequence from now on when it begins."""
        self._on_create.append(callback)

    def get(self, sequence_id: str) -> LiveSequence | None:
        """The sequence in progress with this id."""
        return self._live.get(sequence_id)

    def create(
        self,
        tokens: list[int],
        sampling: SamplingParameters,
        *,
        private: bool = False,
        changed: Broadcast | None = None,
    ) -> LiveSequence:
        """A new sequence with an unguessable id, never used again. Private sequences are not sent to backs.

        `changed` is notified of its changes: several sequences may share one.
        """
        sequence = LiveSequence(secrets.token_hex(16), list(tokens), len(tokens), sampling, private)
        sequence.created_at = self._clock()
        sequence.changed = changed or sequence.changed
        self._live[sequence.id] = sequence
        for callback in self._on_create:
            callback(sequence)
        return sequence

    def apply(self, event: SequenceEvent, now: float) -> None:
        """Take in an event of the engine; events of sequences that were cancelled meanwhile are ignored."""
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
                self._end(sequence, Status.FINISHED)
            case Failed():
                sequence.failure = _failure(event)
                self._end(sequence, Status.FAILED)
        sequence.changed.notify()

    def discard(self, sequence: LiveSequence) -> None:
        """Forget a sequence that is not read any more. Does nothing if it has ended."""
        if sequence.id in self._live:
            sequence.finish_reason = "stop"
            self._end(sequence, Status.FINISHED)

    def fail(self, sequence: LiveSequence, error: DuoError) -> None:
        """End a sequence in progress with an error."""
        sequence.failure = error
        self._end(sequence, Status.FAILED)
        sequence.changed.notify()

    def fail_all(self, reason: str) -> None:
        """End all sequences in progress: nobody continues them."""
        for sequence in list(self):
            self.fail(sequence, NotServingError(reason))

    def leave_slots(self) -> None:
        """The engine process is gone, and its slots with it."""
        for sequence in self:
            sequence.slot = None

    def _end(self, sequence: LiveSequence, status: Status) -> None:
        sequence.move(status)
        del self._live[sequence.id]
        for observer in self._observers:
            observer.on_end(sequence)


def _failure(event: Failed) -> DuoError:
    return ServerError(event.reason) if event.param is None else RequestError(event.reason, event.param)
