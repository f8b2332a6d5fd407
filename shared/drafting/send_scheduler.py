"""When to send a draft that has grown: each message costs CPU time of the lead's front process."""

import math
from collections.abc import Iterable

from shared.drafting.sequence_state import SequenceState
from shared.protocol import Draft


class SendScheduler:
    """Says which drafts to send; each sequence knows whether its own has grown since it was sent last."""

    def __init__(self, interval: float = 0.005, soon: float = 0.001) -> None:
        """Seconds after the last message until a draft is sent that the lead is not waiting for, and one that
        it may be waiting for.

        Each message takes the lead's front process about 0.2 ms of CPU time that its model could use. In the
        time `soon` a fast draft model makes several tokens, which then go into one message.
        """
        self._interval = interval
        self._soon = soon
        self._flushed_at = self._sent_at = -math.inf

    def due(self, sequences: Iterable[SequenceState], now: float, *, idle: bool) -> list[tuple[int, Draft]]:
        """The drafts to send now, each after the group of its sequence; `idle`: none will grow further."""
        if idle or now - self._flushed_at >= self._interval:
            return self.flush(sequences, now)
        passed = now - self._sent_at
        due = [each for each in sequences if self._delay(each) <= passed]
        if due:
            self._sent_at = now
        return _drafts(due)

    def flush(self, sequences: Iterable[SequenceState], now: float) -> list[tuple[int, Draft]]:
        """All drafts that have grown since they were sent."""
        self._flushed_at = self._sent_at = now
        return _drafts(each for each in sequences if each.grown_from is not None)

    def _delay(self, sequence: SequenceState) -> float:
        """Seconds from the last message until the draft of a sequence is sent; inf: it has not grown."""
        if (n_before := sequence.grown_from) is None:
            return math.inf
        n, n_per_step = len(sequence.main.ranked), sequence.options.n_per_step
        if n == n_before:  # only side branches have grown
            return self._interval
        if sequence.is_complete or n_before < n_per_step <= n:  # all that the lead verifies in one step
            return 0.0
        return self._soon if n < n_per_step else self._interval


def _drafts(sequences: Iterable[SequenceState]) -> list[tuple[int, Draft]]:
    drafts = []
    for sequence in sequences:
        sequence.grown_from = None
        if draft := sequence.draft():
            drafts.append((sequence.group, draft))
    return drafts
