"""When a dead engine process is followed by another one, and when not."""

import random
from collections.abc import Callable

from shared.pace import Backoff

_FIRST_DELAY, _MOST_DELAY = 0.2, 30.0
MOST_DEATHS_AT_START = 5
"""If this many processes die before any has been ready, the next would die, too."""
MOST_IDLE_DEATHS = 10
"""The same for processes that die one after the other while they have nothing to do; it takes a minute."""
STABLE_SECONDS = 60.0
"""A process that has lived for so long was not one of those."""


class Restarts:
    """Back-off between starts. The first start after a process that has worked is not delayed."""

    def __init__(self, rng: random.Random, clock: Callable[[], float]) -> None:
        """`rng` jitters the delays; `clock` gives seconds."""
        self._clock = clock
        self._delays = Backoff(_FIRST_DELAY, _MOST_DELAY, rng, at_once=True)
        self._started_at = 0.0
        self._has_worked = False
        self._n_idle_deaths = 0
        self._most_idle_deaths = MOST_DEATHS_AT_START

    @property
    def are_in_vain(self) -> bool:
        """Whether the processes die whatever they are asked for."""
        return self._n_idle_deaths >= self._most_idle_deaths

    def on_start(self) -> None:
        self._started_at, self._has_worked = self._clock(), False

    def on_ready(self) -> None:
        self._most_idle_deaths = MOST_IDLE_DEATHS

    def on_work(self) -> None:
        """It has generated tokens, or ends for want of another machine: more starts are not in vain."""
        self._has_worked = True

    def on_death(self, *, was_busy: bool) -> None:
        """It is gone. `was_busy`: it had something to do, which may be the reason."""
        if self._has_worked or self._clock() - self._started_at >= STABLE_SECONDS:
            self._n_idle_deaths = 0
            self._delays.reset()
        self._n_idle_deaths += not was_busy

    def next_delay(self) -> float:
        """Seconds until the next start."""
        return next(self._delays)
