"""T(n): how long a step with n tokens in its batch takes, learned from the steps themselves."""

import math
from bisect import bisect_left, insort
from collections import deque
from statistics import median

from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants

_MIN_STEP_S = 1e-6
"""No step is shorter; a coarse clock may measure 0."""
_GUESSED_STEP_S = 0.05
"""T(1) before the first step; arbitrary, since only ratios matter until then."""
_GUESSED_SLOPE = 0.1
"""(T(n + 1) - T(n)) / T(1) while only one n has been measured."""


class StepCost:
    """Samples are kept relative to a common pace, which drifts with the machine and the sequences' lengths.

    So the estimate for an n that has not occurred for a while follows the others. While nearly all steps have
    one n, nothing tells its own changes from those of the pace: they count as the pace's, or the ratio of
    that n to all others would drift with every slow moment.
    """

    def __init__(self, constants: SpeculationConstants = DEFAULTS) -> None:
        self._constants = constants
        self._max_exact = constants.max_exact_size
        self._pace = 1.0
        self._surprises: deque[float] = deque(maxlen=constants.pace_window)  # logarithms of actual / expected
        self._samples: dict[int, deque[float]] = {}
        self._medians: dict[int, float] = {}
        self._known: list[int] = []
        self._last_seen: dict[int, int] = {}
        self._n_learned = 0
        self._recent: deque[int] = deque(maxlen=constants.pace_share_window)

    def learn(self, n_tokens: int, seconds: float) -> None:
        """A step of `n_tokens` took `seconds`."""
        n, seconds = self._bucket_of(n_tokens), max(seconds, _MIN_STEP_S)
        self._n_learned += 1
        self._last_seen[n] = self._n_learned
        self._recent.append(n)
        before = self._medians.get(n)
        if before is None:
            self._samples[n] = deque(maxlen=self._constants.step_window)
            insort(self._known, n)
        else:
            self._drift(math.log(seconds / (self._pace * before)))
        self._samples[n].append(seconds / self._pace)
        self._medians[n] = median(self._samples[n])
        if before is not None:
            self._attribute_to_pace(n, self._medians[n] / before)

    def seconds(self, n_tokens: int) -> float:
        """T(n_tokens), linear between measured points. A guess before the first step."""
        if not self._known:
            return _GUESSED_STEP_S * (1 + _GUESSED_SLOPE * (n_tokens - 1))
        if (known := self._medians.get(n_tokens)) is not None and n_tokens <= self._max_exact:
            return self._pace * known
        return self._pace * self._interpolated(n_tokens)

    def age(self, n_tokens: int) -> int:
        """How many steps ago T(n_tokens) was measured; a large number if never."""
        seen = self._last_seen.get(self._bucket_of(n_tokens))
        return self._n_learned - seen if seen is not None else 1 << 30

    def table(self) -> dict[int, float]:
        """T(n) in seconds for every n that has been measured."""
        return {n: self._pace * self._medians[n] for n in self._known}

    def _attribute_to_pace(self, n: int, change: float) -> None:
        """The more of the last steps were of n, beyond a half, the more of this factor is the pace's."""
        change **= max(0.0, 2 * self._recent.count(n) / len(self._recent) - 1)
        self._pace *= change
        samples = self._samples[n]
        for i, sample in enumerate(samples):
            samples[i] = sample / change
        self._medians[n] /= change

    def _drift(self, surprise: float) -> None:
        self._surprises.append(surprise)
        constants = self._constants
        change = min(max(median(self._surprises), -constants.max_pace_change), constants.max_pace_change)
        self._pace *= math.exp(constants.pace_gain * change)

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

    def _bucket_of(self, n_tokens: int) -> int:
        if n_tokens <= self._max_exact:
            return n_tokens
        return self._max_exact * max(2, round(n_tokens / self._max_exact))
