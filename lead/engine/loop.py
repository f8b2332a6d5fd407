"""The engine's loop: take commands, plan, decode, commit; check the records when there is nothing to do."""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

from lead.engine.commands import Cancel, Command, Explain, PostDraft, SetBacks, SetPolicy, Submit
from lead.engine.events import Event, Explained, Failed, Finished, Started
from lead.engine.progress_watch import MOST_SECONDS, ProgressWatch
from lead.engine.recalibration import Recalibration
from lead.engine.scheduler import Scheduler
from lead.engine.speculation.inline_drafting import DraftOrder
from lead.engine.speculation.manager import SpeculationManager
from lead.engine.target import Target
from shared.cache_edits import apply_edits
from shared.errors import IntegrityError, KvCacheFullError, WindowLostError

log = logging.getLogger("engine")

_DRAFT_SECONDS = 0.001
"""Drafting goes on for so long before commands, among them drafts of backs, are looked at."""
_CHECK_EVERY_S = 1.0
"""The records are checked when the engine becomes idle, but not more often than this."""


class Pipe(Protocol):
    """The seam to the front process (`lead.engine.pipe.EnginePipe`)."""

    open: bool

    def send(self, event: Event) -> None:
        """Hand an event to the front."""

    def drain(self, wait: float | None) -> list[Command]:
        """All commands that have arrived; if none have, wait `wait` seconds for one (None: for ever)."""


class Loop:
    """Runs until the front closes the pipe."""

    def __init__(
        self,
        target: Target,
        scheduler: Scheduler,
        speculation: SpeculationManager,
        pipe: Pipe,
        clock: Callable[[], float] = time.monotonic,
        *,
        recalibration: Recalibration | None = None,
        forget_old: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`clock` gives seconds; it must be the one that drafts were stamped with, and `recalibration`'s.

        forget_old: is called at least when it says so, with the seconds until then.
        """
        self._target = target
        self._scheduler = scheduler
        self._speculation = speculation
        self._pipe = pipe
        self._clock = clock
        self._recalibration = recalibration
        self._forget_old = forget_old
        self._wait = 0.0
        self._unchecked = False
        self._checked_at = -math.inf
        self._progress = ProgressWatch(clock())
        self._n_windows_lost = 0

    def run(self) -> None:
        """Raises DecodeFatalError or IntegrityError: the process has to end, and is started again.

        IntegrityError also if sequences wait, and nothing happens for half a minute.
        """
        while self._pipe.open:
            self.step()

    def step(self) -> None:
        """One step, or a wait for commands when there is nothing to do."""
        self._take_commands()
        now = self._clock()
        self._check_progress(now)
        plan = self._scheduler.plan(now)
        if plan is None:
            self._progress.made()
            if self._recalibration:
                with contextlib.suppress(KvCacheFullError):  # the cache is as before
                    self._recalibration.run(now, self._scheduler.find_place)
            return
        self._send(plan.events)
        apply_edits(plan.edits, self._target)
        if plan.wait > 0:
            self._wait = plan.wait
            return
        if plan.order:
            self._draft(plan.order)
            return
        if not plan.spans:
            return
        try:
            began = self._clock()
            logits = self._target.decode(plan.layout)
            now = self._clock()
        except KvCacheFullError as error:
            log.warning("%s: making room", error)
            self._send(self._scheduler.on_cache_full(error.lost))
        except WindowLostError as error:
            self._read_again(error)
        else:
            self._progress.made()
            self._send(self._scheduler.commit(plan, logits, now, now - began))
            self._send(self._speculation.pop_events())

    def _take_commands(self) -> None:
        """Those that have arrived; waits for some if there is nothing to do, or if a plan said so."""
        began = self._clock()
        until_old = self._forget_old()
        wait = self._idle_wait(began, until_old) if self._scheduler.idle else self._wait
        for command in self._pipe.drain(wait):
            self._apply(command)
            self._unchecked = True
        if self._wait:
            self._speculation.on_wait(self._clock() - began)
            self._wait = 0.0

    def _draft(self, order: DraftOrder) -> None:
        """At least one round; more as long as commands need not be looked at."""
        rest: DraftOrder | None = order
        began = self._clock()
        end = began + _DRAFT_SECONDS
        while rest and began < end:
            done = self._speculation.draft(rest)
            now = self._clock()
            self._speculation.on_drafted(done, now - began)
            if done.n_tokens:  # a draft model may have a long prompt to read before the next step
                self._progress.made()
            began, rest = now, done.rest

    def _send(self, events: Sequence[Event]) -> None:
        for event in events:
            self._pipe.send(event)
            if isinstance(event, Finished | Failed) or (isinstance(event, Started) and not event.again):
                self._progress.made()

    def _read_again(self, error: WindowLostError) -> None:
        self._n_windows_lost += len(error.slots)
        level = logging.WARNING if self._n_windows_lost == len(error.slots) else logging.DEBUG
        log.log(level, "%s: their texts are read again (lost so far: %d)", error, self._n_windows_lost)
        self._scheduler.on_window_lost(error.slots)

    def _idle_wait(self, now: float, until_old: float | None) -> float | None:
        """Seconds until there is something to do without a command; None: never."""
        waits = [until_old, self._check_when_idle(now)]
        if self._recalibration:
            waits.append(self._recalibration.wait(now))
        return min((wait for wait in waits if wait is not None), default=None)

    def _check_when_idle(self, now: float) -> float | None:
        """Check the records, or return the seconds until that is due; None: wait for commands only."""
        if not self._unchecked:
            return None
        if (seconds := self._checked_at + _CHECK_EVERY_S - now) > 0:
            return seconds
        try:
            self._scheduler.check_integrity()
        except AssertionError as error:
            self._fail(f"the engine's records are wrong: {error}")
        self._unchecked, self._checked_at = False, now
        return None

    def _check_progress(self, now: float) -> None:
        """A loop that spins, or waits for what never comes, has failed, although it gives signs of life."""
        if self._progress.has_stalled(now):
            self._fail(f"for {MOST_SECONDS:g} s nothing was decoded, admitted or ended")

    def _fail(self, reason: str) -> NoReturn:
        log.critical("%s: %s", reason, self._scheduler.describe())
        raise IntegrityError(reason)

    def _apply(self, command: Command) -> None:
        match command:
            case Submit():
                self._send(self._scheduler.submit(command, self._clock()))
            case Cancel():
                self._scheduler.cancel(command.sequence)
            case PostDraft():
                self._speculation.post_draft(command)
            case SetBacks():
                self._speculation.connect(command.names)
            case SetPolicy():
                self._speculation.set_policy(command.policy, command.depth)
            case Explain():
                report = self._speculation.describe() | {"n_windows_lost": self._n_windows_lost}
                self._pipe.send(Explained(report=report))
            case _:
                raise AssertionError(f"not a command for a running engine: {command}")
