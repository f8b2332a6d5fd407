"""When to send a draft that grew: each message costs the lead some time of the core that it writes with."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Urgency = Literal["now", "soon", "later"]


@dataclass(frozen=True, slots=True)
class Growth:
    """The draft of a sequence has grown.

    `now`: it has all that the lead would take at once, or all that it will get. `soon`: the lead may be
    waiting for just that, and for a little more.
    """

    sequence: str
    urgency: Urgency


class Pace:
    """`soon` is a time in which a fast draft model makes several tokens: one message serves for them."""

    def __init__(self, interval: float, soon: float) -> None:
        """In seconds: how long growth may stay unsent, and growth that the lead may be waiting for."""
        self._interval = interval
        self._soon = soon
        self._flushed_at = self._sent_at = float("-inf")
        self._unsent: dict[str, Urgency] = {}

    def due(self, grown: Iterable[Growth], now: float, *, idle: bool) -> list[str]:
        """The sequences whose drafts are to be sent now."""
        for growth in grown:
            if self._unsent.get(growth.sequence) != "now":
                self._unsent[growth.sequence] = growth.urgency
        if idle or now - self._flushed_at >= self._interval:
            return self.flush(now)
        urgent = {"now", "soon"} if now - self._sent_at >= self._soon else {"now"}
        due = [sequence for sequence, urgency in self._unsent.items() if urgency in urgent]
        for sequence in due:
            del self._unsent[sequence]
        if due:
            self._sent_at = now
        return due

    def flush(self, now: float) -> list[str]:
        """All that is unsent is to be sent now; the lead has just spoken."""
        due = list(self._unsent)
        self._unsent.clear()
        self._flushed_at = self._sent_at = now
        return due
