"""With how many threads a draft model computes: one, or all that the target has.

A small model's step is over before several threads have met at its barriers. Which is faster is learned from
the rounds of drafting themselves: it depends on what else the cores do, and while the engine starts, other
processes start, too.
"""

import logging
from collections import deque
from collections.abc import Callable
from statistics import median

log = logging.getLogger("engine")

_N_TIMED = 7
"""Rounds remembered for each number of threads, of which the median counts."""
_TRIAL = 6
"""Rounds of a trial of the other number; the first one, which starts the threads, is not timed."""
_LEAST_TIMED = 3
"""With fewer rounds of one token, because other sequences have joined, a trial decides nothing."""
_FIRST_TRIAL, _MOST_BETWEEN = 16, 2048
"""Rounds before the first trial, and at most between two; trials that change nothing become rarer."""
_MARGIN = 0.95
"""Only what takes less than this part of the other's time takes its place."""


class ThreadChoice:
    """Of two numbers of threads that with the shorter round of one token."""

    def __init__(self, use: Callable[[int], None], used: int, other: int) -> None:
        """`use` sets the number of threads; `used` is set already."""
        self._use = use
        self._used, self._other = used, other
        self._times: dict[int, deque[float]] = {n: deque(maxlen=_N_TIMED) for n in (used, other)}
        self._between = _FIRST_TRIAL
        self._n_rounds = 0  # since the last trial
        self._n_tried = 0  # of the trial that goes on

    def on_round(self, n_tokens: int, seconds: float) -> bool:
        """A round with `n_tokens` in its batch took `seconds`; returns False if it belonged to a trial."""
        if self._n_tried:
            self._try(seconds if n_tokens == 1 else None)
            return False
        if n_tokens != 1:
            return True
        self._times[self._used].append(seconds)
        self._n_rounds += 1
        if self._n_rounds >= self._between:
            self._n_rounds, self._n_tried = 0, 1
            self._times[self._other].clear()
            self._use(self._other)
        return True

    def _try(self, seconds: float | None) -> None:
        """seconds: of a round of one token; None: it had more."""
        times = self._times[self._other]
        if self._n_tried > 1 and seconds is not None:
            times.append(seconds)
        self._n_tried += 1
        if self._n_tried <= _TRIAL:
            return
        self._n_tried = 0
        then = median(self._times[self._used])
        if len(times) >= _LEAST_TIMED and (now := median(times)) < _MARGIN * then:
            self._used, self._other = self._other, self._used
            self._between = _FIRST_TRIAL
            log.info(
                "draft model: %d thread%s from now on, %.2f ms for a token instead of %.2f",
                self._used,
                "" if self._used == 1 else "s",
                1000 * now,
                1000 * then,
            )
        else:
            self._between = min(2 * self._between, _MOST_BETWEEN)
        self._use(self._used)
