"""Decides when a child process is started, restarted after its death, ended, killed or given up.

It knows no processes and no clock: callers report events, and `next` returns the action to perform.
"""

import enum
import math
import random
from dataclasses import dataclass, field
from typing import Self

from shared.rate_limit import Backoff

MAX_DEATHS_AT_START, MAX_DEATHS = 5, 10
"""The maximum numbers of successive deaths of a model's idle processes: before a process was ready, and
afterwards. Ten deaths take 1 min.
"""
_FIRST_DELAY, _MAX_DELAY = 0.2, 30.0

_STABLE_SECONDS = 60.0
"""If a process was ready and has lived for this long, its start did not cause its death."""
_START_SECONDS = 60.0
"""The minimum of `max_silence` before the first sign of life, while a process imports its modules."""
_TICKS = 10
"""The number of ticks in `max_silence`. Silence is counted in ticks, which do not pass while this process is
stopped.
"""


ChildState = enum.Enum("ChildState", "STARTING READY RESTARTING SLEEPING WAKING FAILED STOPPED")
"""STARTING: no child has been ready yet. RESTARTING: the child has died. SLEEPING: it was ended for lack of
use. WAKING: it is needed again. FAILED, STOPPED: no child will be started again."""


ChildAction = enum.Enum("ChildAction", "START STOP KILL LEAVE")
"""START a process, STOP (tell it to end), KILL it for its silence, or LEAVE: no process is wanted."""

_Process = enum.Enum("_Process", "NONE THERE TOLD KILLED LOST")
"""TOLD: told to end. LOST: it no longer replies."""
_FINAL = {ChildState.FAILED, ChildState.STOPPED}


def _usual_delays() -> Backoff:
    return Backoff(_FIRST_DELAY, _MAX_DELAY, random.Random(), at_once=True)  # noqa: S311 - no secret


@dataclass(slots=True)
class Supervisor:
    """The supervisor of one child; `now` is in seconds of any clock.

    delays: the seconds between starts. The child is killed after `max_silence` seconds without a sign of
    life, and ended after `sleep_seconds` without use; 0: never. No child is started after `max_deaths`
    successive deaths of idle children, or `max_deaths_at_start` deaths before any was ready.
    """

    delays: Backoff = field(default_factory=_usual_delays)
    max_silence: float = 0.0
    sleep_seconds: float = 0.0
    max_deaths_at_start: float = math.inf
    max_deaths: float = math.inf
    state: ChildState = ChildState.STARTING
    has_been_ready: bool = False
    _process: _Process = _Process.NONE
    start_at: float = -math.inf
    """The earliest time of the next start."""
    _started_at: float = 0.0
    _used_at: float = 0.0
    _has_worked: bool = False
    _n_idle_deaths: int = 0
    _has_been_heard: bool = False
    _ticked_at: float = 0.0
    _n_silent: int = 0
    """The number of ticks since the last sign of life."""

    @classmethod
    def of_model(cls, sleep_seconds: float) -> Self:
        """Return a supervisor for a process that loads a model."""
        return cls(
            sleep_seconds=sleep_seconds, max_deaths_at_start=MAX_DEATHS_AT_START, max_deaths=MAX_DEATHS
        )

    def next(self, now: float, *, is_busy: bool = False) -> ChildAction | None:
        """Return the action to perform now; None: nothing before `deadline` or a report. is_busy: the child
        is in use.
        """
        match self._process:
            case _Process.THERE:
                return self._watch(now, is_busy=is_busy)
            case _Process.NONE if self.state in _FINAL:
                return ChildAction.LEAVE
            case _Process.NONE if self.state is not ChildState.SLEEPING and now >= self.start_at:
                self._process, self._started_at, self._has_worked = _Process.THERE, now, False
                self._ticked_at, self._n_silent, self._has_been_heard = now, 0, False
                return ChildAction.START
            case _:
                return None

    def deadline(self) -> float | None:
        """Return the time of the next action if nothing is reported before; None: never."""
        if self._process is _Process.NONE:
            return None if self.state is ChildState.SLEEPING else self.start_at
        looks = []
        if self._process is _Process.THERE and self.max_silence:
            looks.append(self._ticked_at + self.max_silence / _TICKS)
        if self._process is _Process.THERE and self.sleep_seconds > 0 and self.state is ChildState.READY:
            looks.append(self._used_at + self.sleep_seconds)
        return min(looks, default=None)

    def heard(self) -> None:
        """Record a sign of life."""
        self._n_silent, self._has_been_heard = 0, True

    def ready(self, now: float) -> None:
        """Record that the child is ready for use."""
        if self._process is _Process.THERE and self.state not in _FINAL:
            self.state, self.has_been_ready, self._used_at = ChildState.READY, True, now

    def worked(self) -> None:
        """Record that restarts are worthwhile: the child has worked, or ended because another machine is
        missing.
        """
        self._has_worked = True

    def used(self, now: float) -> bool:
        """Record that the child is needed; return True if it slept and must be started."""
        self._used_at = now
        if self.state is not ChildState.SLEEPING:
            return False
        self.state = ChildState.WAKING
        return True

    def lost(self, now: float) -> bool:
        """Record that the child no longer replies; return True if it has died, so that its end was not
        intended.
        """
        if self._process not in {_Process.THERE, _Process.KILLED}:
            return False
        self._process = _Process.LOST
        if self.state in _FINAL:
            return False
        was_ready = self.state is ChildState.READY
        self.state = ChildState.RESTARTING if self.has_been_ready else ChildState.STARTING
        if self._has_worked or (was_ready and now - self._started_at >= _STABLE_SECONDS):
            self._n_idle_deaths = 0
            self.delays.reset()
        return True

    def died_idle(self) -> None:
        """Record that the lost child was idle."""
        self._n_idle_deaths += 1

    def ended(self, now: float) -> None:
        """Record that the process has ended, or that none could be started."""
        self.lost(now)
        if self._process is _Process.TOLD:
            self.delays.reset()
            self.start_at = now
        else:
            self.start_at = now + next(self.delays)
        self._process = _Process.NONE
        maximum = self.max_deaths if self.has_been_ready else self.max_deaths_at_start
        if self._n_idle_deaths >= maximum:
            self.fail()

    def fail(self) -> None:
        """Give up, because starting another child would not help."""
        if self.state is not ChildState.STOPPED:
            self.state = ChildState.FAILED

    def stop(self) -> None:
        """End the child for good, because it is no longer needed."""
        self.state = ChildState.STOPPED

    def _watch(self, now: float, *, is_busy: bool) -> ChildAction | None:
        if self._is_silent(now):
            self._process = _Process.KILLED
            return ChildAction.KILL
        if is_busy or self.state is not ChildState.READY:
            self._used_at = now
        elif 0 < self.sleep_seconds <= now - self._used_at:
            self.state = ChildState.SLEEPING
        if self.state in _FINAL or self.state is ChildState.SLEEPING:
            self._process = _Process.TOLD
            return ChildAction.STOP
        return None

    def _is_silent(self, now: float) -> bool:
        if not self.max_silence:
            return False
        if now - self._ticked_at >= self.max_silence / _TICKS:
            self._n_silent += 1
            self._ticked_at = now
        maximum = self.max_silence if self._has_been_heard else max(self.max_silence, _START_SECONDS)
        return self._n_silent >= _TICKS * maximum / self.max_silence
