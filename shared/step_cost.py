"""T(n), the time of a step with n tokens, learned from the steps themselves."""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

_MIN_STEP_S = 1e-6
"""The shortest time of a step, because a coarse clock may measure 0."""
_MAX_STEP_S = 1e6
"""The longest time of a step; a longer time means that the clock was set."""
_GUESSED_STEP_S = 0.05
"""The guess of T(1) before the first step; it is arbitrary, since only ratios matter until then."""
_GUESSED_SLOPE = 0.1
"""The guess of (T(n + 1) - T(n)) / T(1) while only one n has been measured."""
N_UNSTEADY = 2
"""The number of first steps of a size that take longer on a GPU: llama.cpp builds a graph, then CUDA records
it. An H200 took 4.2 and 6.0 ms for them, then 3.1.
"""
_MIN_KNOWN = 1.0
"""The weight of a ratio's comparisons when all are old, so that a new one counts more."""
_DEEPEST_DIP, _HIGHEST_STEP = math.log(1.5), math.log(2)
"""The maximum deviation of a size's first times below and above the times suggested by its neighbors."""
_ENOUGH_SWEEPS = 3
"""The number of steps of each size from which on their median is trusted, even with dips beyond
`_DEEPEST_DIP`.
"""
_MAX_SURPRISE = math.log(4)
"""The largest deviation from the expected time that counts, as a logarithm: the machine may have slept."""
_MAX_EXCESS = 3.0
"""The largest excess of an unsteady step that counts, in steady steps: any step may be interrupted."""


@dataclass(frozen=True, slots=True)
class StepCostConstants:
    """The tuned constants of T(n), and the trade-off of each."""

    max_exact_size: int = 32
    """Up to this n, each n has an entry; larger n are rounded to multiples. Trade-off: precision or speed."""
    first_window: int = 3
    """A new n is first compared with this many steps before it. Trade-off: robustness to outliers or speed.
    """
    pace_window: int = 9
    """The pace moves towards the median of this many steps. Trade-off: robustness to outliers or speed."""
    pace_gain: float = 0.3
    """The share of the way to this median that the pace moves per step. Trade-off: quick following or little
    noise.
    """
    enclosing_window: int = 9
    """If two steps of one n are at most this many steps apart, the steps between them are compared with these
    two. Trade-off: more comparisons of rare sizes, or less influence of slow changes of the machine.
    """
    max_known: float = 10.0
    """The largest weight of a ratio's comparisons. Trade-off: smooth values or quick following."""
    forgotten_after: float = 12.0
    """The number of steps without a comparison after which a ratio's weight falls by one, so that rare sizes
    follow quickly.
    """
    doubted_after: int = 256
    """A size that seems slower than a larger size is forgotten after this many steps without it, multiplied
    by one plus the number of its comparisons. Trade-off: wrong measurements are corrected early, or few slow
    steps measure again.
    """
    max_ratio_error: float = 0.3
    """The largest error, as a logarithm, that a comparison may show. Trade-off: robustness to outliers or
    speed.
    """
    settling_gain: float = 0.05
    """The weight of a new sample of the cost of changing the size on a GPU."""


_DEFAULTS = StepCostConstants()


class StepCost:
    """T(n), the time of a step with n tokens in its batch: the pace of the machine times a ratio for each n.

    One slow step may mean a slower machine or a wrong ratio. So the pace comes from the last steps of any n,
    and ratios come only from comparisons that a change of the machine does not affect: a step between two
    steps of another n is compared with their mean, or all n are timed in turn.

    A comparison raises one ratio and lowers the other, so ratios that are not measured stay in proportion.
    """

    def __init__(self, constants: StepCostConstants = _DEFAULTS, *, settles: bool = False) -> None:
        """settles: the device is a GPU, on which the first steps of a size take longer."""
        self._constants = constants
        self.settles = settles
        self.last_size, self._n_of_size = 0, 0  # of the last steps
        self._settling = [0.0] * N_UNSTEADY  # see `settling`
        self._max_exact = constants.max_exact_size
        self._pace = 0.0  # as the ratios: logarithms
        self._ratios: dict[int, float] = {}
        self._known: list[int] = []  # sizes with a ratio, in ascending order
        self._n_compared: dict[int, float] = {}  # weight of the comparisons behind a ratio
        self._compared_at: dict[int, int] = {}  # the value of `_n_learned` then; as in `_last_seen`
        self._last_seen: dict[int, int] = {}
        self._n_learned = 0  # steps so far: the clock of what is forgotten
        self.n_measured = 0
        """The number of times that many n were measured together."""
        self._recent: deque[tuple[int, float]] = deque(
            maxlen=max(constants.enclosing_window, constants.pace_window)
        )

    def learn_next(self, n_tokens: int, seconds: float) -> float:
        """Learn from the engine's next step, of `n_tokens` in `seconds`; return the part of `seconds` due to
        settling.

        A step of more tokens than `max_exact_size` reads a prompt. Settling adds little to such a step, so
        its whole time counts.
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
        """The additional seconds of the first and the second step of a size; zeros except on some GPUs."""
        return [max(0.0, each) for each in self._settling]

    @property
    def is_settling(self) -> bool:
        """True if the last step was the first one of its size."""
        return self._n_of_size == 1

    def learn_settling(self, seconds: Sequence[float]) -> None:
        """Replace `settling` by careful measurements."""
        self._settling[: len(seconds)] = seconds

    def learn(self, n_tokens: int, seconds: float) -> None:
        """Learn that a step of `n_tokens` took `seconds`, after other steps of that size."""
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

    def learn_sweeps(self, steps: Iterable[tuple[int, float]]) -> None:
        """Replace T(n) by the median of steps in which all n took turns. steps: (n, seconds) of each.

        With few steps of each size, the shortest time is taken instead, because any step may have been
        interrupted. The times of other sizes then bound the plausible times: a size that seems too slow is
        not used, so no later step would correct it.
        """
        timed: dict[int, list[float]] = {}
        for n_tokens, seconds in steps:
            timed.setdefault(n_tokens, []).append(seconds)
        if len(min(timed.values(), key=len, default=())) >= _ENOUGH_SWEEPS:
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
        """Return T(n_tokens) > 0, linear between measured points; a guess before the first step."""
        if not self._known:
            return _GUESSED_STEP_S * (1 + _GUESSED_SLOPE * (n_tokens - 1))
        if (known := self._ratios.get(n_tokens)) is not None and n_tokens <= self._max_exact:
            return math.exp(self._pace + known)
        return self._interpolated(n_tokens)

    def age(self, n_tokens: int) -> int:
        """Return the number of steps since T(n_tokens) was measured; a large number if never.

        0 on devices where steps settle, because a single step of another size does not show its T(n).
        """
        if self.settles:
            return 0
        seen = self._last_seen.get(self._bucket_of(n_tokens))
        return self._n_learned - seen if seen is not None else 1 << 30

    def table(self) -> dict[int, float]:
        """Return T(n) in seconds for every measured n."""
        return {n: self._measured(n) for n in self._known}

    def _begin(self, n: int, ratio: float, n_compared: float = 0.0) -> None:
        if n not in self._ratios:
            insort(self._known, n)
        self._ratios[n] = ratio
        self._n_compared[n] = n_compared
        self._compared_at[n] = self._n_learned

    def _forget_slower(self, n: int) -> None:
        """Forget sizes that seem slower than `n` although they are smaller, unless measured lately or often.

        A size that seems slow is seldom used, so no step would correct it. Its next step measures it again.
        """
        for narrower in self._known[: bisect_left(self._known, n)]:
            if self._ratios[narrower] > self._ratios[n]:
                n_steps = self._n_learned - self._last_seen[narrower]
                if n_steps > self._constants.doubted_after * (1 + self._n_compared[narrower]):
                    self._known.remove(narrower)
                    del self._ratios[narrower]

    def _plausible(self, n: int, ratio: float) -> float:
        """Bound the ratio of a new n, because the machine may have changed, or slept, during its first step.

        A step of more tokens than a neighbor's takes longer, but not longer per token, up to a factor.
        """
        right = bisect_left(self._known, n)
        for other in self._known[max(0, right - 1) : right + 1]:
            share = math.log(n / other)
            minimum, maximum = min(0.0, share) - _DEEPEST_DIP, max(0.0, share) + _HIGHEST_STEP
            ratio = self._ratios[other] + min(max(ratio - self._ratios[other], minimum), maximum)
        return ratio

    def _shown(self, n_steps: int) -> float:
        """Return the pace that the last `n_steps` steps show."""
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
        """Correct the ratios of two sizes; the one with fewer comparisons is corrected more.

        difference: the measured logarithm of T(n) / T(other). The shares do not depend on the age of
        comparisons, otherwise the sum of all ratios would drift.
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
        """Return the weight of a ratio's comparisons, in which old comparisons count little."""
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
    """Return the times by n, shortened to the times that larger and smaller steps allow."""
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
