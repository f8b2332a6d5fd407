"""What happened to the fuzzed messages, and the memory of this process meanwhile."""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Self

import psutil

_MEGABYTE = 1e6
_SHARES = (0.0, 0.1, 0.5, 1.0)
_WARM_UP = 0.02
"""The share of messages after which memory is looked at first: imports and caches come before."""


class UnexpectedErrors(logging.Handler):
    """Collects what a program logs with a trace, or as an error. A context manager."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.ERROR:
            error = record.exc_info[1] if record.exc_info else None
            self.seen[f"{record.name}: {record.msg} {type(error).__name__}: {error}"[:300]] += 1

    def __enter__(self) -> Self:
        root = logging.getLogger()
        self._before = root.handlers[:], root.level
        root.handlers[:] = [self]
        root.setLevel("INFO")
        return self

    def __exit__(self, *_: object) -> None:
        root = logging.getLogger()
        root.handlers[:] = self._before[0]
        root.setLevel(self._before[1])


class Tally:
    """Counts by name; memory in MB by share of the `n` messages sent."""

    def __init__(self, n: int, tell: Callable[[str], None]) -> None:
        self.counts: Counter[str] = Counter()
        self.memory: dict[float, float] = {}
        self._n = n
        self._tell = tell

    def note(self, n_sent: int) -> None:
        """So many messages have been sent."""
        for share in _SHARES:
            if share not in self.memory and n_sent >= max(share, _WARM_UP) * self._n:
                self.memory[share] = psutil.Process().memory_info().rss / _MEGABYTE
                self._tell(f"{n_sent:,} of {self._n:,} messages, {self.memory[share]:.0f} MB")
