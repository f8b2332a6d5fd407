"""A clock that can be stopped."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stopwatch:
    """Seconds, without those in which it stood still; it stands still at first."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._passed = 0.0
        self._since: float | None = None

    def __call__(self) -> float:
        return self._passed if self._since is None else self._passed + self._clock() - self._since

    @contextmanager
    def running(self) -> Iterator[None]:
        """It runs within."""
        self._since = self._clock()
        try:
            yield
        finally:
            self._passed = self()
            self._since = None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Within `running`: it stands still."""
        self._passed = self()
        self._since = None
        try:
            yield
        finally:
            self._since = self._clock()
