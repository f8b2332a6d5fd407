"""Drives the engine: takes commands from the front, runs steps of the model, sends events to the front."""

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
"""After this many seconds of drafting, the engine looks at commands, which include drafts of backs."""
_CHECK_EVERY_S = 1.0
"""The shortest time between two checks of the records, which are made when the engine becomes idle."""

STALL_SECONDS = 29.0
"""No progress for longer is a deadlock: a wait for drafts ends after 1 s, and a grammar takes a few seconds.
"""
_MAX_SECONDS_COUNTED = 5.0
"""The maximum number of seconds counted between two checks, as the process may have been stopped (Ctrl-Z)."""


class ProgressWatch:
    """Detects an engine that makes no progress although sequences wait.

    While there are sequences, it sums up the time since a token was decoded, or a sequence admitted or ended.
    """

    def __init__(self, now: float) -> None:
        """`now` is in seconds of the clock of `has_stalled`."""
        self._now = now
        self._seconds = 0.0

    def reset(self) -> None:
        """Record progress.

        Call it when the target or a drafter has decoded, a sequence has started or ended, or none waits.
        """
        self._seconds = 0.0

    def has_stalled(self, now: float) -> bool:
        """Return whether there was no progress for STALL_SECONDS; call it before each step."""
        self._seconds += min(now - self._now, _MAX_SECONDS_COUNTED)
        self._now = now
        return self._seconds >= STALL_SECONDS


class Pipe(Protocol):
    """The channel of commands and events. open: False after the front has closed the pipe."""

    open: bool

    def send(self, *events: Event) -> None:
        """Send events together, so that the front wakes up once."""

    def drain(self, wait: float | None) -> list[Command]:
        """Return all commands that have arrived; if there are none, wait until one arrives or the pipe is
        closed.

        wait: the maximum seconds to wait; None: no limit.
        """


class Chore(Protocol):
    """Work between steps: moving texts to and from disk, saving slots, measuring T(n) again."""

    def run_due(self, now: float, *, idle: bool) -> float:
        """Do what is due between two steps; return the seconds until the next call.

        0: the next call is after the next step.
        """

    def seconds_until_due(self, now: float) -> float | None:
        """Return the seconds until there is work in an idle engine; None: there is none."""


def execute(
    action: Action | None,
    engine: Engine,
    target: Target,
    clock: Callable[[], float],
    meanwhile: Callable[[], None] = lambda: None,
) -> bool:
    """Perform the action, and report its result to `engine`; return whether anything was decoded.

    meanwhile: called while a step is computed, if `target` computes on a device and leaves this thread free.
    Raises DecodeFatalError, after which `target` is unusable.
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
    """Run rounds, at least one, until commands must be looked at; return whether anything was decoded."""
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
        """`clock` gives seconds; drafts were stamped with the same clock, and `chores` use it.

        on_backs: called when the connected backs change. on_ask: called with each question, which a chore
        answers. before: returns the events that must be sent before the given events.
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

        After DecodeFatalError or IntegrityError the process must end. IntegrityError is also raised if
        sequences make no progress for STALL_SECONDS.
        """
        while self._pipe.open:
            self.step()

    def step(self) -> None:
        """Do one step, or wait for commands if there is nothing to do."""
        self._take_commands()
        now = self._clock()
        if self._progress.has_stalled(now):  # a spinning engine, too, although it gives signs of life
            self._fail(f"the engine has made no progress for {STALL_SECONDS:g} s")
        idle = self._engine.idle
        awaited = [seconds for chore in self._chores if (seconds := chore.run_due(now, idle=idle))]
        if awaited:
            self._progress.reset()
        action = self._engine.next(now)
        # Before a step with a prompt, the front must know whose it is, in case the process dies in it.
        can_send_later = isinstance(action, StepPlan) and not action.n_prompt
        overlaps = can_send_later and self._target.overlaps
        if not overlaps:
            self._send(at_once=not can_send_later)
        if execute(action, self._engine, self._target, self._clock, self._use_time_of_step):
            self._progress.reset()
        if not overlaps or self._engine.idle:
            self._send(at_once=self._engine.idle)
        if isinstance(action, Wait):
            self._wait = action.seconds or min(awaited, default=0.0)  # nothing runs: it may wait for a chore
        elif action is None:
            self._progress.reset()

    def _take_commands(self) -> None:
        """Apply the commands that have arrived.

        Wait for commands if the engine is idle, or has asked to wait.
        """
        wait = self._idle_wait(self._clock()) if self._engine.idle else self._wait
        self._wait = 0.0
        early, self._early = self._early, []
        commands = early + self._pipe.drain(0.0 if early else wait)
        now = self._clock()
        for command in commands:
            if isinstance(command, Cancel):
                self._buffer.hold(self._pop_events())  # so that its events are dropped, too
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
        """Send events and apply drafts while a device computes.

        Drafts do not affect the step in progress; other commands could end one of its sequences. From the
        first other command on, all commands are kept for later, in order, because a draft may depend on a
        command before it.
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
                    self._progress.reset()
        return events

    def _idle_wait(self, now: float) -> float | None:
        """Return the seconds until there is work without a command; None: there is none."""
        waits = [self._check_when_idle(now), *(chore.seconds_until_due(now) for chore in self._chores)]
        return min((wait for wait in waits if wait is not None), default=None)

    def _check_when_idle(self, now: float) -> float | None:
        """Check the records, or return the seconds until a check is due; None: no check before a command."""
        if not self._unchecked:
            return None
        if (seconds := self._checked_at + _CHECK_EVERY_S - now) > 0:
            return seconds
        try:
            self._engine.check_integrity()
        except AssertionError as error:
            self._fail(f"the engine's state is inconsistent: {error}")
        self._unchecked, self._checked_at = False, now
        return None

    def _fail(self, reason: str) -> NoReturn:
        log.critical("%s: %s", reason, self._engine.slots.describe())
        raise IntegrityError(reason)
