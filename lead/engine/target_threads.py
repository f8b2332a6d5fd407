"""Chooses the target's number of threads if no option does: all cores, as in llama-server, or all but one.

With all cores a step is shorter, as long as nothing else computes. A back on the same cores would make steps
several times as slow: at the end of each operation, all threads wait for the last one.
"""

import logging
import time
from collections.abc import Callable
from statistics import median

log = logging.getLogger("engine")

_N_TIMED = 3
"""The number of steps to time with each number of threads; the two numbers alternate."""
_MAX_SECONDS = 6.0
"""The maximum number of seconds to measure; then the steps timed so far decide."""
_MARGIN = 0.95
"""`few` threads are used only if their step takes less than this share of the time with `many`."""


class TargetThreads:
    """Uses `many` threads, or `few` if these were measured to be faster or backs compute on the
    same cores.
    """

    def __init__(
        self,
        use: Callable[[int], None],
        few: int,
        many: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`use` sets the number of threads; `few` are already set. Equal numbers leave no choice."""
        self._use = use
        self._few, self._many = few, max(few, many)
        self._clock = clock
        self._are_faster: bool | None = None  # not measured
        self.are_shared = False
        """True if backs compute on the same cores."""
        self._apply()

    def measure(self, step: Callable[[], float], interrupted: Callable[[], bool]) -> None:
        """Measure whether `many` threads are faster. Nothing else may compute. Call again if `interrupted`.
        step: decodes one token and returns its time in seconds.
        """
        if self._few == self._many or self._are_faster or self.are_shared:
            return
        seconds: dict[int, list[float]] = {self._few: [], self._many: []}
        began = self._clock()
        for _ in range(_N_TIMED):
            for n, timed in seconds.items():
                if interrupted():
                    self._apply()
                    return
                self._use(n)
                step()  # this one starts the threads
                timed.append(step())
            if self._clock() - began > _MAX_SECONDS:
                break
        self._decide(median(seconds[self._few]), median(seconds[self._many]))
        self._apply()

    def choose(self, n: int) -> None:
        """Use the number of threads that an earlier process chose; 0: unknown."""
        self._are_faster = {self._few: False, self._many: True}.get(n)
        self._apply()

    @property
    def used(self) -> int:
        return self._few if self._are_faster is False or self.are_shared else self._many

    def share(self, *, with_backs: bool) -> None:
        """Set whether backs compute on this machine, too."""
        self.are_shared = with_backs
        self._apply()

    def _decide(self, of_few: float, of_many: float) -> None:
        self._are_faster = of_few >= _MARGIN * of_many
        log.debug(
            "target: using %d threads, %.1f ms per token (with %d threads: %.1f ms)",
            self.used,
            1000 * (of_many if self._are_faster else of_few),
            self._few if self._are_faster else self._many,
            1000 * (of_few if self._are_faster else of_many),
        )

    def _apply(self) -> None:
        if self._few < self._many:
            self._use(self.used)
