"""T(n): how long a step with n tokens in its batch takes, learned from the steps themselves."""

import math
from bisect import bisect_left, insort
from collections import deque
from statistics import median

_WINDOW = 9
"""Steps remembered per n: their median shrugs off a busy moment of the machine."""
_EXACT = 32
"""Up to here each n has its own entry: T has steps there and need not even rise."""
_BUCKET = 32
_DRIFT = 0.2
"""How much of the steps' surprise is put down to the whole machine's having become slower or faster."""
_SURPRISES = 5
"""Of so many surprises the median counts: one busy moment says nothing about the machine."""
_MOST_SURPRISE = 0.3
_LEAST_STEP_S = 1e-6
"""No step is shorter, whatever a coarse clock says."""
_GUESSED_STEP_S = 0.05
_GUESSED_SLOPE = 0.1
"""T(n + 1) - T(n) over T(1), as long as only one n is known."""


class StepCost:
    """Samples are kept relative to a common pace that drifts with the machine and the texts' length.

    So an n that has not been seen for a while follows what happened to the others.
    """

    def __init__(self) -> None:
        self._pace = 1.0
        self._surprises: deque[float] = deque(maxlen=_SURPRISES)
        self._samples: dict[int, deque[float]] = {}
        self._medians: dict[int, float] = {}
        self._known: list[int] = []
        self._last_seen: dict[int, int] = {}
        self._n_learned = 0

    def learn(self, n_tokens: int, seconds: float) -> None:
        """A step of `n_tokens` took `seconds`."""
        n, seconds = _key(n_tokens), max(seconds, _LEAST_STEP_S)
        self._n_learned += 1
        self._last_seen[n] = self._n_learned
        if n not in self._samples:
            self._samples[n] = deque(maxlen=_WINDOW)
            insort(self._known, n)
        else:
            self._surprises.append(math.log(seconds / (self._pace * self._medians[n])))
            surprise = median(self._surprises)
            self._pace *= math.exp(_DRIFT * min(max(surprise, -_MOST_SURPRISE), _MOST_SURPRISE))
        self._samples[n].append(seconds / self._pace)
        self._medians[n] = median(self._samples[n])

    def seconds(self, n_tokens: int) -> float:
        """T(n_tokens); between known points on the straight line. A guess as long as nothing is known."""
        if not self._known:
            return _GUESSED_STEP_S * (1 + _GUESSED_SLOPE * (n_tokens - 1))
        if (known := self._medians.get(n_tokens)) is not None and n_tokens <= _EXACT:
            return self._pace * known
        return self._pace * self._interpolated(n_tokens)

    def age(self, n_tokens: int) -> int:
        """How many steps ago T(n_tokens) was measured; a large number if never."""
        seen = self._last_seen.get(_key(n_tokens))
        return self._n_learned - seen if seen is not None else 1 << 30

    def table(self) -> dict[int, float]:
        """T(n) in seconds for every n that has been measured."""
        return {n: self._pace * self._medians[n] for n in self._known}

    def _interpolated(self, n: int) -> float:
        known, medians = self._known, self._medians
        if len(known) == 1:
            first = medians[known[0]]
            return first * (1 + _GUESSED_SLOPE * (n - 1)) / (1 + _GUESSED_SLOPE * (known[0] - 1))
        right = bisect_left(known, n)
        if right == 0:
            return medians[known[0]]
        right = min(right, len(known) - 1)
        low, high = known[right - 1], known[right]
        slope = (medians[high] - medians[low]) / (high - low)
        if n > high:
            return medians[high] + max(slope, 0.0) * (n - high)
        return medians[low] + slope * (n - low)


def _key(n_tokens: int) -> int:
    return n_tokens if n_tokens <= _EXACT else _BUCKET * max(_EXACT // _BUCKET + 1, round(n_tokens / _BUCKET))
