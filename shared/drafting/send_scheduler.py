"""When to send a draft that has grown: each message costs CPU time of the lead's front process."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Urgency = Literal["immediate", "soon", "batched"]


@dataclass(frozen=True, slots=True)
class DraftUpdate:
    """The draft of a sequence has grown.

    `immediate`: it has all the tokens that the lead verifies in one step, or all that it will get. `soon`:
    the lead may be waiting for these tokens, and for a few more.
    """

    sequence: str
    urgency: Urgency


class SendScheduler:
    """Collects updates and says which drafts to send."""

    def __init__(self, interval: float = 0.005, soon: float = 0.001) -> None:
        """Seconds after the last message until `batched` and `soon` updates are sent.

        Each message takes the lead's front process about 0.2 ms of CPU time that its model could use. In the
        time `soon` a fast draft model makes several tokens, which then go into one message.
        """
        self._interval = interval
        self._soon = soon
        self._flushed_at = self._sent_at = float("-inf")
        self._unsent: dict[str, Urgency] = {}

    def due(self, updates: Iterable[DraftUpdate], now: float, *, idle: bool) -> list[str]:
        """Add `updates`; the sequences whose drafts to send now. `idle`: no draft will grow further."""
        for update in updates:
            if self._unsent.get(update.sequence) != "immediate":
                self._unsent[update.sequence] = update.urgency
        if idle or now - self._flushed_at >= self._interval:
            return self.flush(now)
        sent_now = {"immediate", "soon"} if now - self._sent_at >= self._soon else {"immediate"}
        due = [sequence for sequence, urgency in self._unsent.items() if urgency in sent_now]
        for sequence in due:
            del self._unsent[sequence]
        if due:
            self._sent_at = now
        return due

    def flush(self, now: float) -> list[str]:
        """All sequences whose drafts have not been sent since they grew."""
        due = list(self._unsent)
        self._unsent.clear()
        self._flushed_at = self._sent_at = now
        return due
