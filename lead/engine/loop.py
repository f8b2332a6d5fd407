"""Drives the engine: commands from the front, steps of the model, events to the front."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn, Protocol

from lead.engine.commands import Ask, Cancel, Command, SetBacks
from lead.engine.engine import Engine
from lead.engine.event_buffer import EventBuffer
from lead.engine.events import Event, Failed, Finished, Started
from lead.engine.scheduler import Action, StepPlan
from lead.engine.speculation.policy import DraftOrder, Wait
from lead.engine.target import Target
from shared.cache_edits import apply_edits
from shared.errors import IntegrityError, KvCacheFullError, WindowLostError
from shared.protocol import Draft

log = logging.getLogger("engine")

_DRAFT_SECONDS = 0.001
"""Drafting goes on for so long before commands, among them drafts of backs, are looked at."""
_CHECK_EVERY_S = 1.0
"""The records are checked when the engine becomes idle, but not more often than this."""

STALL_SECONDS = 29.0
"""A wait for drafts ends after a second, a grammar takes three: whoever waits for longer waits for ever."""
_MAX_SECONDS_COUNTED = 5.0
"""Between two looks: the process may have been stopped for any time (Ctrl-Z), or a step may take long."""


class ProgressWatch:
    """Detects an engine that makes no progress although sequences wait.

    It adds up the time in which there are sequences, and none is decoded, admitted or ended.
    """

    def __init__(self, now: float) -> None:
        """`now`: in seconds, as in `has_stalled`."""
        self._now = now
        self._seconds = 0.0

    def made(self) -> None:
        """Record progress: something was decoded (also by a draft model), admitted or ended, or nothing
        waits.
        """
        self._seconds = 0.0

    def has_stalled(self, now: float) -> bool:
        """Whether there was no progress for too long; to be called before each step."""
        self._seconds += min(now - self._now, _MAX_SECONDS_COUNTED)
        self._now = now
        return self._seconds >= STALL_SECONDS


class Pipe(Protocol):
    """The channel of commands and events. `open` turns False when the front has closed it."""

    open: bool

    def send(self, *events: Event) -> None:
        """Send events to the front together, so that it wakes up once."""

    def drain(self, wait: float | None) -> list[Command]:
        """All commands that have arrived; if none has, wait for one (or for the front to close the pipe).

        `wait`: maximal seconds; None: for ever.
        """


class Chore(Protocol):
    """Work beside the steps: texts to disk and back, saving of slots, measuring T(n) again."""

    def turn(self, now: float, *, idle: bool) -> float:
        """Do what is due, between two steps; returns the seconds until the next call, 0: after the
        next step.
        """

    def wait(self, now: float) -> float | None:
        """Seconds until there is something to do while the engine is idle; None: nothing."""


def execute(
    action: Action | None,
    engine: Engine,
    target: Target,
    clock: Callable[[], float],
    meanwhile: Callable[[], None] = lambda: None,
) -> bool:
    """Perform the action, and report its result to `engine`; returns whether anything was decoded.

    meanwhile: is called while a step is computed, if `target` computes on a device and leaves this thread
    free. Raises DecodeFatalError: `target` is then unusable.
    """
    if edits := engine.pop_edits():
        began = clock()
        apply_edits(edits, target)
        engine.edited(edits, clock() - began)
    match action:
        case StepPlan():
            return _decode(action, engine, target, clock, meanwhile)
        case DraftOrder():
            return _draft(action, engine, clock)
        case _:
            return False


def _decode(
    plan: StepPlan, engine: Engine, target: Target, clock: Callable[[], float], meanwhile: Callable[[], None]
) -> bool:
    overlaps = target.overlaps
    began = clock()
    try:
        wait = target.launch(plan.layout)
        if overlaps:
            meanwhile()
        logits = wait()
    except (KvCacheFullError, WindowLostError) as error:
        engine.failed(error)
        return False
    now = clock()
    engine.decoded(plan, logits, now, now - began)
    return True


def _draft(order: DraftOrder, engine: Engine, clock: Callable[[], float]) -> bool:
    """At least one round; more as long as commands need not be looked at."""
    rest: DraftOrder | None = order
    began = clock()
    end = began + _DRAFT_SECONDS
    has_decoded = False  # a draft model may have a long prompt to read before the next step
    while rest and began < end:
        done = engine.draft(rest)
        now = clock()
        engine.drafted(done, now - began)
        has_decoded |= done.n_tokens > 0
        began, rest = now, done.rest
    return has_decoded


class Loop:
    """The loop of the engine process, which runs until the front closes the pipe."""

    def __init__(
        self,
        target: Target,
        engine: Engine,
        pipe: Pipe,
        clock: Callable[[], float] = time.monotonic,
        *,
        chores: Sequence[Chore] = (),
        on_backs: Callable[[SetBacks], None] = lambda _: None,
        on_ask: Callable[[Ask], None] | None = None,
        before: Callable[[Sequence[Event]], Iterable[Event]] = lambda _: (),
    ) -> None:
        """`clock` gives seconds; it must be the one that drafts were stamped with, and that of `chores`.

        on_backs: is told which backs are connected. on_ask: begins what one of `chores` goes on with.
        before: what has to be sent before some events.
        """
        self._target = target
        self._engine = engine
        self._pipe = pipe
        self._buffer = EventBuffer(pipe.send, before)
        self._clock = clock
        self._chores = chores
        self._on_backs = on_backs
        self._on_ask = on_ask
        self._wait = 0.0  # seconds that the next look for commands may take
        self._early: list[Command] = []  # that arrived during the last step
        self._unchecked = False  # a step was made since the last `check_integrity`
        self._checked_at = -math.inf  # when that was
        self._progress = ProgressWatch(clock())

    def run(self) -> None:
        """Run until the front closes the pipe.

        After DecodeFatalError and IntegrityError the process has to end. IntegrityError is also raised if
        sequences wait without progress for half a minute.
        """
        while self._pipe.open:
            self.step()

    def step(self) -> None:
        """Do one step, or wait for commands if there is nothing to do."""
        self._take_commands()
        now = self._clock()
        if self._progress.has_stalled(now):  # also one that spins, although it gives signs of life
            self._fail(f"for {STALL_SECONDS:g} s nothing was decoded, admitted or ended")
        awaited = [seconds for chore in self._chores if (seconds := chore.turn(now, idle=self._engine.idle))]
        if awaited:
            self._progress.made()
        action = self._engine.next(now)
        # With a prompt in it the front has to know whose step this is, should the process die of it.
        can_send_later = isinstance(action, StepPlan) and not action.n_prompt
        overlaps = can_send_later and self._target.overlaps
        if not overlaps:
            self._send(at_once=not can_send_later)
        if execute(action, self._engine, self._target, self._clock, self._use_time_of_step):
            self._progress.made()
        if not overlaps or self._engine.idle:
            self._send(at_once=self._engine.idle)
        if isinstance(action, Wait):
            self._wait = action.seconds or min(awaited, default=0.0)  # nothing runs: it may wait for a chore
        elif action is None:
            self._progress.made()

    def _take_commands(self) -> None:
        """Take the commands that have arrived; waits for some if there is nothing to do, or if the engine
        said so.
        """
        wait = self._idle_wait(self._clock()) if self._engine.idle else self._wait
        self._wait = 0.0
        early, self._early = self._early, []
        commands = early + self._pipe.drain(0.0 if early else wait)
        now = self._clock()
        for command in commands:
            if isinstance(command, Cancel):
                self._buffer.hold(self._pop_events())  # what has happened to it is dropped, too
            if isinstance(command, Ask):
                assert self._on_ask
                self._on_ask(command)
                continue
            self._engine.apply(command, now)
            self._buffer.on_applied(command)
            self._unchecked = True
            if isinstance(command, SetBacks):
                self._on_backs(command)

    def _use_time_of_step(self) -> None:
        """While a device computes, do what the next step would have to wait for.

        Drafts change nothing of the step under way; other commands could end one of its sequences. Those stay
        in order: a draft may be for a sequence, or from a back, of which a command before it tells.
        """
        self._send()
        for command in self._pipe.drain(0.0):
            if isinstance(command, Draft) and not self._early:
                self._engine.apply(command, self._clock())
            else:
                self._early.append(command)

    def _send(self, *, at_once: bool = False) -> None:
        self._buffer.pass_on(self._pop_events(), self._clock(), at_once=at_once)

    def _pop_events(self) -> list[Event]:
        events = self._engine.pop_events()
        for event in events:
            match event:
                case Finished() | Failed() | Started(again=False):
                    self._progress.made()
        return events

    def _idle_wait(self, now: float) -> float | None:
        """Seconds until there is something to do without a command; None: never."""
        waits = [self._check_when_idle(now), *(chore.wait(now) for chore in self._chores)]
        return min((wait for wait in waits if wait is not None), default=None)

    def _check_when_idle(self, now: float) -> float | None:
        """Check the records, or return the seconds until that is due; None: wait for commands only."""
        if not self._unchecked:
            return None
        if (seconds := self._checked_at + _CHECK_EVERY_S - now) > 0:
            return seconds
        try:
            self._engine.check_integrity()
        except AssertionError as error:
            self._fail(f"the engine's records are wrong: {error}")
        self._unchecked, self._checked_at = False, now
        return None

    def _fail(self, reason: str) -> NoReturn:
        log.critical("%s: %s", reason, self._engine.slots.describe())
        raise IntegrityError(reason)
