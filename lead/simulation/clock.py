"""Simulated time: events happen in the order of their times, then in the order they were scheduled."""

import heapq
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
            self.now, _, call = heapq.heappop(self._events)
            call()
