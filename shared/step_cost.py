"""How long a step takes: T(n), learned from the steps themselves."""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

_MIN_STEP_S = 1e-6
"""No step is shorter; a coarse clock may measure 0."""
_GUESSED_STEP_S = 0.05
"""T(1) before the first step; arbitrary, since only ratios matter until then."""
_GUESSED_SLOPE = 0.1
"""(T(n + 1) - T(n)) / T(1) while only one n has been measured."""
N_UNSTEADY = 2
"""Steps of a size on a GPU that take longer than further ones: llama.cpp builds a graph, then CUDA records
it. An H200 took 4.2 and 6.0 ms for them, then 3.1."""
_MOST_EXCESS = 3.0
"""How much longer such a step may count for, relative to a steady one: any step may be interrupted."""


@dataclass(frozen=True, slots=True)
class StepCostConstants:
    """The tuned numbers of T(n), with what each of them trades."""

    step_window: int = 9
    """Steps remembered for each n, of which the median counts: robust to outliers against quick to follow."""
    max_exact_size: int = 32
    """Up to this n each has an entry of its own, larger n are rounded to multiples: precise against quick."""
    pace_gain: float = 0.2
    """Share of an unexpected duration attributed to the whole machine: follows its drift against noise."""
    pace_window: int = 5
    """The median of this many unexpected durations moves the pace: robust to outliers against quick."""
    pace_share_window: int = 16
    """Steps of which the share of each n is taken: a long run of one n against what others have shown."""
    max_pace_change: float = 0.3
    """The largest change, as a logarithm, by one step: a single n may not reflect the whole machine."""
    change_share: float = 0.5
    """The part of the cost of another size, on a GPU, that its first step is charged with: others may follow.
    In 24 simulated cells of two models on an H200 adaptive over no drafts was 1.21 with 0, 1.30 with .5 (the
    worst .80 and .89), 1.29 with .75."""
    change_decay: float = 0.95
    """The weight of the past at each change, of what the last ones have cost."""


_DEFAULTS = StepCostConstants()


class StepCost:
    """T(n), the time of a step with n tokens in its batch.

    Samples are kept relative to a common pace, which drifts with the machine and the sequences' lengths.

    So the estimate for an n that has not occurred for a while follows the others. While nearly all steps have
    one n, nothing tells its own changes from those of the pace: they count as the pace's, or the ratio of
    that n to all others would drift with every slow moment.
    """

    def __init__(self, constants: StepCostConstants = _DEFAULTS, *, settles: bool = False) -> None:
        """settles: on a GPU, where a step takes longer until some of its size have gone before."""
        self._constants = constants
        self._settles = settles
        self._size, self._n_of_size = 0, 0  # of the last steps
        self._excess, self._n_changes = 0.0, 0.0
        self._max_exact = constants.max_exact_size
        self._pace = 1.0
        self._surprises: deque[float] = deque(maxlen=constants.pace_window)  # logarithms of actual / expected
        self._samples: dict[int, deque[float]] = {}
        self._medians: dict[int, float] = {}
        self._known: list[int] = []
        self._last_seen: dict[int, int] = {}
        self._n_learned = 0
        self._recent: deque[int] = deque(maxlen=constants.pace_share_window)

    def learn_next(self, n_tokens: int, seconds: float) -> None:
        """The engine's next step, of `n_tokens`, took `seconds`.

        Wide steps read prompts: settling adds little to them, and their T(n) is known from them alone.
        """
        is_wide = n_tokens > self._max_exact
        if is_wide:
            self._size, self._n_of_size = n_tokens, 0
        if not self._settles or is_wide or self._is_steady(n_tokens) or not self._known:
            self.learn(n_tokens, seconds)
        else:
            steady = self.seconds(n_tokens)
            self._excess += min(max(0.0, seconds - steady), _MOST_EXCESS * steady)

    def learn(self, n_tokens: int, seconds: float) -> None:
        """A step of `n_tokens` took `seconds`, after others of that size."""
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

    def next_seconds(self, sizes: Iterable[int]) -> list[float]:
        """T(n) of the next step for each of these sizes, and what it costs that it is not the last one's."""
        seconds = list(map(self.seconds, sizes))
        if not self._settles or not self._n_changes:
            return seconds
        change = self._constants.change_share * self._excess / self._n_changes
        return [each if n == self._size else each + change for n, each in zip(sizes, seconds, strict=True)]

    def _is_steady(self, n_tokens: int) -> bool:
        """Whether enough steps of this size have gone before this one, which is recorded."""
        if n_tokens != self._size:
            self._size, self._n_of_size = n_tokens, 0
            decay = self._constants.change_decay
            self._excess, self._n_changes = decay * self._excess, decay * self._n_changes + 1
        self._n_of_size += 1
        return self._n_of_size > N_UNSTEADY

    def age(self, n_tokens: int) -> int:
        """How many steps ago T(n_tokens) was measured; a large number if never.

        0 where steps settle: a single one would measure something else.
        """
        if self._settles:
            return 0
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
