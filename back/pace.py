"""When to send a draft that grew: each message costs the lead some time of the core that it writes with."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Growth:
    """The draft of a sequence has grown; `urgent` if the lead may be waiting for just that."""

    sequence: str
    urgent: bool


class Pace:
    """Urgent growth is sent at once, the rest every `interval` seconds and before there is nothing to do."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._flushed_at = float("-inf")
        self._unsent: dict[str, None] = {}  # an ordered set

    def due(self, grown: Iterable[Growth], now: float, *, idle: bool) -> list[str]:
        """The sequences whose drafts are to be sent now."""
        urgent = []
        for growth in grown:
            self._unsent[growth.sequence] = None
            if growth.urgent:
                urgent.append(growth.sequence)
        if idle or now - self._flushed_at >= self._interval:
            return self.flush(now)
        for sequence in urgent:
            self._unsent.pop(sequence, None)
        return list(dict.fromkeys(urgent))

    def flush(self, now: float) -> list[str]:
        """All that is unsent is to be sent now."""
        due = list(self._unsent)
        self._unsent.clear()
        self._flushed_at = now
        return due
