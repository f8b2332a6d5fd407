"""T(n), the time of a step, learned from the steps themselves."""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

_MIN_STEP_S = 1e-6
"""No step is shorter; a coarse clock may measure 0."""
_MAX_STEP_S = 1e6
"""No step is longer; what is beyond that is a clock that was set."""
_GUESSED_STEP_S = 0.05
"""T(1) before the first step; arbitrary, since only ratios matter until then."""
_GUESSED_SLOPE = 0.1
"""(T(n + 1) - T(n)) / T(1) while only one n has been measured."""
N_UNSTEADY = 2
"""Steps of a size on a GPU that take longer than further ones: llama.cpp builds a graph, then CUDA records
it. An H200 took 4.2 and 6.0 ms for them, then 3.1."""
_MIN_KNOWN = 1.0
"""A ratio counts as known from this many comparisons if all are of long ago: the next one tells more."""
_DEEPEST_DIP, _HIGHEST_STEP = math.log(1.5), math.log(2)
"""How far below or above what its neighbours suggest the first steps of a size are believed to be."""
_ENOUGH_TURNS = 3
"""From so many steps of each size their median is trusted. Some have dips deeper than `_DEEPEST_DIP`."""
_MAX_SURPRISE = math.log(4)
"""A step counts as so much longer or shorter than expected, at most: the machine may have slept meanwhile."""
_MAX_EXCESS = 3.0
"""How much longer such a step may count for, relative to a steady one: any step may be interrupted."""


@dataclass(frozen=True, slots=True)
class StepCostConstants:
    """The tuned constants of T(n), and the trade-off of each."""

    max_exact_size: int = 32
    """Up to this n each has an entry of its own, larger n are rounded to multiples: precise against quick."""
    first_window: int = 3
    """A new n is first compared with so many steps before it: robust to outliers against quick."""
    pace_window: int = 9
    """The median of this many steps is the pace that is aimed at: robust to outliers against quick."""
    pace_gain: float = 0.3
    """The share of the way to it that is made with each step: quick to follow against noise."""
    enclosing_window: int = 9
    """Two steps of one n that are at most so far apart tell how long the steps between them should take:
    rare sizes are compared, too, against slow changes of the machine."""
    max_known: float = 10.0
    """A ratio counts as known from at most this many comparisons: smooth against quick to follow."""
    forgotten_after: float = 12.0
    """For each so many steps without one it counts as known from one comparison less: rare sizes follow
    quickly, too."""
    doubted_after: int = 256
    """A size that seems slower than a wider one is forgotten after so many steps without it, and so many more
    for each comparison: to correct what was measured while the machine was busy, against steps that are
    spent on finding out again that it is slow."""
    max_ratio_error: float = 0.3
    """The largest error, as a logarithm, that one comparison may show: robust to outliers against quick."""
    settling_gain: float = 0.05
    """The weight of a new sample in what a step of another size than the one before costs on a GPU."""


_DEFAULTS = StepCostConstants()


class StepCost:
    """T(n), the time of a step with n tokens in its batch: the pace of the machine times a ratio for each n.

    A single step does not tell whether the machine or the cost of its n has changed. Therefore both follow
    measured times, never their own past values: the pace is estimated from the last steps of any n, and a
    ratio from comparisons, in which the machine's own changes cancel out. A step that was made between two
    steps of another n is compared with their mean; or all n were timed in turns. What one ratio of a
    comparison gains, the other loses, so ratios that are not measured for hours stay in proportion to the
    others.
    """

    def __init__(self, constants: StepCostConstants = _DEFAULTS, *, settles: bool = False) -> None:
        """settles: on a GPU, where a step takes longer until some of its size have gone before."""
        self._constants = constants
        self.settles = settles
        self.last_size, self._n_of_size = 0, 0  # of the last steps
        self._settling = [0.0] * N_UNSTEADY  # see `settling`
        self._max_exact = constants.max_exact_size
        self._pace = 0.0  # as the ratios: logarithms
        self._ratios: dict[int, float] = {}
        self._known: list[int] = []  # sizes with a ratio, in ascending order
        self._n_compared: dict[int, float] = {}  # weight of the comparisons behind a ratio
        self._compared_at: dict[int, int] = {}  # `_n_learned` at that time; so has `_last_seen`
        self._last_seen: dict[int, int] = {}
        self._n_learned = 0  # steps so far: the clock of what is forgotten
        self.n_measured = 0
        """How often it was measured all at once."""
        self._recent: deque[tuple[int, float]] = deque(
            maxlen=max(constants.enclosing_window, constants.pace_window)
        )

    def learn_next(self, n_tokens: int, seconds: float) -> float:
        """Learn from the engine's next step, of `n_tokens` in `seconds`; returns the part of `seconds` that
        was settling.

        Steps wider than the exact sizes read prompts: settling adds little to them, and their T(n) is known
        from them alone.
        """
        n_before = self._n_of_size if n_tokens == self.last_size else 0
        self.last_size, self._n_of_size = n_tokens, n_before + 1
        is_wide = n_tokens > self._max_exact
        if not self.settles or is_wide or n_before >= N_UNSTEADY or not self._known:
            self.learn(n_tokens, seconds)
            return 0.0
        steady = self.seconds(n_tokens)
        excess = min(seconds - steady, _MAX_EXCESS * steady)
        self._settling[n_before] += self._constants.settling_gain * (excess - self._settling[n_before])
        return max(0.0, excess)

    @property
    def settling(self) -> list[float]:
        """Seconds by which the first step of a size takes longer, then the second; zeros except on
        some GPUs.
        """
        return [max(0.0, each) for each in self._settling]

    @property
    def is_settling(self) -> bool:
        """Whether the last step was the first one of its size."""
        return self._n_of_size == 1

    def learn_settling(self, seconds: Sequence[float]) -> None:
        """Replace `settling` by careful measurements."""
        self._settling[: len(seconds)] = seconds

    def learn(self, n_tokens: int, seconds: float) -> None:
        """Learn that a step of `n_tokens` took `seconds`, after others of that size."""
        n, log_seconds = self._bucket_of(n_tokens), _logarithm(seconds)
        self._n_learned += 1
        self._last_seen[n] = self._n_learned
        shown = self._shown(self._constants.first_window)
        if n not in self._ratios:
            self._begin(n, self._plausible(n, log_seconds - shown))
            if len(self._known) > 1:
                return  # of a size that was not known before, a step does not show the pace
        expected = shown + self._ratios[n]
        log_seconds = min(max(log_seconds, expected - _MAX_SURPRISE), expected + _MAX_SURPRISE)
        self._compare_enclosed(n, log_seconds)
        self._recent.append((n, log_seconds))
        self._pace += self._constants.pace_gain * (self._shown(self._constants.pace_window) - self._pace)
        self._forget_slower(n)

    def learn_turns(self, steps: Iterable[tuple[int, float]]) -> None:
        """Learn from (n, seconds) of steps in which all n took turns. The median of each replaces its T(n).

        Any step may have been interrupted. Where there are few steps of each size, the times of other sizes
        bound the longest plausible one: a size that seems too long is not used, so no later step would
        correct it.
        """
        timed: dict[int, list[float]] = {}
        for n_tokens, seconds in steps:
            timed.setdefault(n_tokens, []).append(seconds)
        if len(min(timed.values(), key=len, default=())) >= _ENOUGH_TURNS:
            self.learn_table({n: median(each) for n, each in timed.items()})
        else:
            self.learn_table(_uninterrupted({n: min(each) for n, each in timed.items()}))

    def learn_table(self, seconds: Mapping[int, float]) -> None:
        """Replace T(n) for these n by careful measurements."""
        if not seconds:
            return
        times = {self._bucket_of(n): _logarithm(each) for n, each in seconds.items()}
        known = [each - self._ratios[n] for n, each in times.items() if n in self._ratios]
        self._pace = median(known or times.values())
        self._n_learned += len(times)
        for n, each in times.items():
            self._last_seen[n] = self._n_learned
            self._begin(n, each - self._pace, self._constants.max_known)
        self._recent.clear()
        self.n_measured += 1

    def seconds(self, n_tokens: int) -> float:
        """T(n_tokens) > 0, linear between measured points. A guess before the first step."""
        if not self._known:
            return _GUESSED_STEP_S * (1 + _GUESSED_SLOPE * (n_tokens - 1))
        if (known := self._ratios.get(n_tokens)) is not None and n_tokens <= self._max_exact:
            return math.exp(self._pace + known)
        return self._interpolated(n_tokens)

    def age(self, n_tokens: int) -> int:
        """The number of steps since T(n_tokens) was measured; a large one if never.

        0 on devices where steps settle: a single step would measure something else.
        """
        if self.settles:
            return 0
        seen = self._last_seen.get(self._bucket_of(n_tokens))
        return self._n_learned - seen if seen is not None else 1 << 30

    def table(self) -> dict[int, float]:
        """T(n) in seconds for every measured n."""
        return {n: self._measured(n) for n in self._known}

    def _begin(self, n: int, ratio: float, n_compared: float = 0.0) -> None:
        if n not in self._ratios:
            insort(self._known, n)
        self._ratios[n] = ratio
        self._n_compared[n] = n_compared
        self._compared_at[n] = self._n_learned

    def _forget_slower(self, n: int) -> None:
        """Forget what seems slower than n although it is narrower, unless that was measured lately or often.

        As it seems slow it is seldom used, so no step would correct it. The next one finds it out anew.
        """
        for narrower in self._known[: bisect_left(self._known, n)]:
            if self._ratios[narrower] > self._ratios[n]:
                n_steps = self._n_learned - self._last_seen[narrower]
                if n_steps > self._constants.doubted_after * (1 + self._n_compared[narrower]):
                    self._known.remove(narrower)
                    del self._ratios[narrower]

    def _plausible(self, n: int, ratio: float) -> float:
        """A ratio of an n that is new: the machine may have changed, or slept, during its first step.

        Beside its neighbours, a step of more tokens takes longer, and not longer per token, up to a factor.
        """
        right = bisect_left(self._known, n)
        for other in self._known[max(0, right - 1) : right + 1]:
            share = math.log(n / other)
            minimum, maximum = min(0.0, share) - _DEEPEST_DIP, max(0.0, share) + _HIGHEST_STEP
            ratio = self._ratios[other] + min(max(ratio - self._ratios[other], minimum), maximum)
        return ratio

    def _shown(self, n_steps: int) -> float:
        """The pace that the last steps show."""
        last = [each - self._ratios[n] for n, each in islice(reversed(self._recent), n_steps)]
        return median(last) if last else self._pace

    def _compare_enclosed(self, n: int, log_seconds: float) -> None:
        """Correct the ratios of n and of the steps since the last step of n, if that was not long ago."""
        enclosed = []
        for size, each in reversed(self._recent):
            if size == n:
                break
            enclosed.append((size, each))
        else:
            return
        if abs(log_seconds - each) > self._constants.max_ratio_error:
            return  # the machine has changed meanwhile, or one of both was interrupted
        mean = (log_seconds + each) / 2
        for size, each in enclosed:
            self._compare(n, size, mean - each, 1 / len(enclosed))

    def _compare(self, n: int, other: int, difference: float, weight: float) -> None:
        """difference: the logarithm of T(n) / T(other), as measured. The less known one is corrected more.

        The share of each does not depend on the age of comparisons: the sum of all ratios would drift.
        """
        ratios, known, maximum = self._ratios, self._n_compared, self._constants.max_known
        n_min = min(self._lately(n), self._lately(other)) + weight
        known[n], known[other] = min(known[n] + weight, maximum), min(known[other] + weight, maximum)
        self._compared_at[n] = self._compared_at[other] = self._n_learned
        largest = _MAX_SURPRISE if n_min <= 1 else self._constants.max_ratio_error
        error = difference - (ratios[n] - ratios[other])
        error = min(max(error, -largest), largest) * weight / n_min
        share = known[other] / (known[n] + known[other])
        ratios[n] += error * share
        ratios[other] -= error * (1 - share)

    def _lately(self, n: int) -> float:
        """The number of recent comparisons that a ratio rests on; old ones count little."""
        known, n_steps = self._n_compared[n], self._n_learned - self._compared_at[n]
        return min(known, max(_MIN_KNOWN, known - n_steps / self._constants.forgotten_after))

    def _measured(self, n: int) -> float:
        return math.exp(self._pace + self._ratios[n])

    def _interpolated(self, n: int) -> float:
        known = self._known
        if len(known) == 1:
            first = self._measured(known[0])
            return first * (1 + _GUESSED_SLOPE * (n - 1)) / (1 + _GUESSED_SLOPE * (known[0] - 1))
        right = bisect_left(known, n)
        if right == 0:
            return self._measured(known[0])
        low, high = known[min(right, len(known) - 1) - 1], known[min(right, len(known) - 1)]
        lower, higher = self._measured(low), self._measured(high)
        if n > high:
            slope = max(higher - lower, 0.0) / (high - low)
            return higher + min(slope, higher / high) * (n - high)  # no longer per token than known
        return (lower * (high - n) + higher * (n - low)) / (high - low)

    def _bucket_of(self, n_tokens: int) -> int:
        if n_tokens <= self._max_exact:
            return n_tokens
        return self._max_exact * max(2, round(n_tokens / self._max_exact))


def _uninterrupted(seconds: Mapping[int, float]) -> dict[int, float]:
    """Times by n, shortened to what those of wider and of narrower steps allow."""
    longest, bounded = math.inf, dict[int, float]()
    for n in sorted(seconds, reverse=True):
        bounded[n] = min(seconds[n], longest)
        longest = min(longest, bounded[n] * math.exp(_DEEPEST_DIP))
    per_token = math.inf
    for n in sorted(seconds):
        bounded[n] = min(bounded[n], per_token * n * math.exp(_HIGHEST_STEP))
        per_token = min(per_token, bounded[n] / n)
    return bounded


def _logarithm(seconds: float) -> float:
    return math.log(min(max(seconds, _MIN_STEP_S), _MAX_STEP_S))
