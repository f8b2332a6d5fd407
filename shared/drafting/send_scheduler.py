"""When to send a draft that has grown: each message costs CPU time of the lead's front process."""

from collections.abc import Iterable

from shared.drafting.sequence_state import SequenceState


class SendScheduler:
    """Says which drafts to send; each sequence knows whether its own has grown since it was sent last."""

    def __init__(self, interval: float = 0.005, soon: float = 0.001) -> None:
        """Seconds after the last message until `batched` and `soon` drafts are sent.

        Each message takes the lead's front process about 0.2 ms of CPU time that its model could use. In the
        time `soon` a fast draft model makes several tokens, which then go into one message.
        """
        self._interval = interval
        self._soon = soon
        self._flushed_at = self._sent_at = float("-inf")

    def due(self, sequences: Iterable[SequenceState], now: float, *, idle: bool) -> list[SequenceState]:
        """Those whose drafts to send now; `idle`: no draft will grow further."""
        if idle or now - self._flushed_at >= self._interval:
            return self.flush(sequences, now)
        sent_now = {"immediate", "soon"} if now - self._sent_at >= self._soon else {"immediate"}
        due = [sequence for sequence in sequences if sequence.unsent in sent_now]
        if due:
            self._sent_at = now
        return _sent(due)

    def flush(self, sequences: Iterable[SequenceState], now: float) -> list[SequenceState]:
        """All whose drafts have grown since they were sent."""
        self._flushed_at = self._sent_at = now
        return _sent([sequence for sequence in sequences if sequence.unsent])


def _sent(sequences: list[SequenceState]) -> list[SequenceState]:
    for sequence in sequences:
        sequence.unsent = None
    return sequences
