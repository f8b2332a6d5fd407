"""Steps are timed again until the first request: while the engine starts, other programs start, too.

A wrong T(n) of widths that seem too slow to be used is corrected only by chance later.
"""

from collections import deque
from collections.abc import Callable

_AFTER_SECONDS = (3.0, 10.0, 30.0, 100.0)
"""Since the engine was ready. So many samples of each width replace those of the start."""


class Recalibration:
    """When to measure again; the first request ends it, because its slot is no longer empty."""

    def __init__(self, measure: Callable[[], None], now: float) -> None:
        """`measure` returns as soon as a command arrives. now: when the engine is ready, in seconds."""
        self._measure = measure
        self._due = deque(now + seconds for seconds in _AFTER_SECONDS)

    def wait(self, now: float) -> float | None:
        """Seconds until it is due; None: never again."""
        return max(0.0, self._due[0] - now) if self._due else None

    def run(self, now: float) -> None:
        """Measure if it is due."""
        if self._due and now >= self._due[0]:
            self._due.popleft()
            self._measure()
