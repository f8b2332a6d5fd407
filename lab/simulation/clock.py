"""Simulated time, and messages in transit."""

import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

Payload = TypeVar("Payload")
Compute = Callable[[float, Callable[[], None]], None]
"""(seconds, call): compute a task that takes `seconds` if nothing else runs, then call `call`."""


class VirtualClock:
    """Runs events in the order of their times, then in the order in which they were scheduled.

    `now`: seconds since the beginning.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._n_asked = 0

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        assert seconds >= 0, f"{seconds} s from now is in the past"
        self._n_asked += 1
        heapq.heappush(self._events, (self.now + seconds, self._n_asked, call))

    def run(self, finished: Callable[[], bool]) -> None:
        """Advance the time until `finished` returns True; raises RuntimeError if no event is left."""
        while not finished():
            if not self._events:
                raise RuntimeError("nothing is left to happen")
            self.now, _, call = heapq.heappop(self._events)
            call()


class Link(Generic[Payload]):
    """One direction of a connection: messages arrive in order, after a delay.

    Each message occupies the wire for `message_s` seconds and then travels for `delay_s`.
    """

    def __init__(
        self, clock: VirtualClock, delay_s: float, message_s: float, deliver: Callable[[Payload], None]
    ) -> None:
        self._clock = clock
        self._delay_s = delay_s
        self._message_s = message_s
        self._deliver = deliver
        self._free_at = 0.0

    def send(self, message: Payload) -> None:
        self._free_at = max(self._clock.now, self._free_at) + self._message_s
        under_way = self._free_at + self._delay_s - self._clock.now
        self._clock.after(under_way, lambda: self._deliver(message))
