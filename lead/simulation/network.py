"""One direction of a connection: messages arrive in order, each some time after it was sent."""

from collections.abc import Callable
from typing import Generic, TypeVar

from lead.simulation.clock import VirtualClock

Payload = TypeVar("Payload")


class Link(Generic[Payload]):
    """Each message takes the wire for `message_s` and is then under way for `delay_s`."""

    def __init__(
        self, clock: VirtualClock, delay_s: float, message_s: float, deliver: Callable[[Payload], None]
    ) -> None:
        self._clock = clock
        self._delay_s = delay_s
        self._message_s = message_s
        self._deliver = deliver
        self._free_at = 0.0

    def send(self, message: Payload) -> None:
        """Post a message."""
        self._free_at = max(self._clock.now, self._free_at) + self._message_s
        under_way = self._free_at + self._delay_s - self._clock.now
        self._clock.after(under_way, lambda: self._deliver(message))
