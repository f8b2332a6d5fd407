"""Steps are timed again while the engine is idle: while it starts, other programs start, too.

A wrong T(n) of widths that seem too slow to be used is corrected only by chance later.
"""

from collections import deque
from collections.abc import Callable

from lead.engine.calibration import WIDEST
from lead.engine.step_plan import TrialPlace

_AFTER_SECONDS = (3.0, 10.0, 30.0)
"""Since the engine was ready. So many samples of each width replace those of the start."""
_RETRY_SECONDS, _MOST_RETRIES = 3.0, 5
"""After an attempt that was interrupted, or made while the machine was busy, which takes a step or two; each
time twice as long, because a model may just be slow."""


class Recalibration:
    """When to measure again."""

    def __init__(self, measure: Callable[[TrialPlace], bool], now: float) -> None:
        """measure: returns as soon as a command arrives, and whether it has learned something.

        now: when the engine is ready, in seconds.
        """
        self._measure = measure
        self._due = deque(now + seconds for seconds in _AFTER_SECONDS)
        self._n_retries = 0

    def wait(self, now: float) -> float | None:
        """Seconds until it is due; None: never again."""
        return max(0.0, self._due[0] - now) if self._due else None

    def run(self, now: float, find_place: Callable[[int], TrialPlace | None]) -> None:
        """Measure if it is due and the widest step has a place; times that were missed count once."""
        is_due = False
        while self._due and now >= self._due[0]:
            self._due.popleft()
            is_due = True
        if is_due and (place := find_place(WIDEST)) and not self._measure(place):
            self._retry(now + _RETRY_SECONDS * 2**self._n_retries)

    def _retry(self, at: float) -> None:
        if self._n_retries < _MOST_RETRIES and (not self._due or at < self._due[0]):
            self._n_retries += 1
            self._due.appendleft(at)
