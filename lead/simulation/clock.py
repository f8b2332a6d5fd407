"""Simulated time: events happen in the order of their times, then in the order they were scheduled."""

import heapq
import math
from collections.abc import Callable

Compute = Callable[[float, Callable[[], None]], None]
"""Computes for so many seconds, as it would take alone, then calls."""


class VirtualClock:
    """`now` is seconds since the beginning."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._n_asked = 0

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call `call` in `seconds` from now."""
        assert seconds >= 0, f"{seconds} s from now is in the past"
        self._n_asked += 1
        heapq.heappush(self._events, (self.now + seconds, self._n_asked, call))

    def run(self, finished: Callable[[], bool]) -> None:
        """Let time pass until `finished`; RuntimeError if nothing is left to happen before."""
        while not finished():
            if not self._events:
                raise RuntimeError("nothing is left to happen")
            self._proceed()

    def pass_until(self, now: float) -> None:
        """Let everything happen that is due by then."""
        while self.next_at <= now:
            self._proceed()
        self.now = now

    @property
    def next_at(self) -> float:
        """When something happens next; infinite: never."""
        return self._events[0][0] if self._events else math.inf

    def _proceed(self) -> None:
        self.now, _, call = heapq.heappop(self._events)
        call()
