"""Notices an engine that does nothing for the sequences that wait for it, although it looks alive."""

MOST_SECONDS = 29.0
"""A wait for drafts ends after a second, a grammar takes three: whoever waits for longer waits for ever."""
_MOST_SECONDS_COUNTED = 5.0
"""Between two looks: the process may have been stopped for any time (Ctrl-Z), or a step may take long."""


class ProgressWatch:
    """Adds up the time in which there are sequences, and none is decoded, admitted or ended."""

    def __init__(self, now: float) -> None:
        """`now`: in seconds, as in `has_stalled`."""
        self._now = now
        self._seconds = 0.0

    def made(self) -> None:
        """Something was decoded (also by a draft model), admitted or ended, or nobody waits."""
        self._seconds = 0.0

    def has_stalled(self, now: float) -> bool:
        """Whether there was none for too long; to be asked before each step."""
        self._seconds += min(now - self._now, _MOST_SECONDS_COUNTED)
        self._now = now
        return self._seconds >= MOST_SECONDS
