"""Medians, percentiles, and an upper bound for the speed-up by speculation."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, minimum and maximum."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Raises ValueError if `values` is empty."""
        if not values:
            raise ValueError("no values to take a median of")
        return cls(statistics.median(values), min(values), max(values))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of them do not exceed (nearest rank); 0 without values."""
    if not values:
        return 0.0
    rank = max(1, -int(-share * len(values) // 1))
    return sorted(values)[rank - 1]


def accepted_runs(drafted: Sequence[bool]) -> list[int]:
    """How many draft tokens each step accepted, from which tokens of a text were drafted.

    Every step ends with a token of the target's own (recovered or bonus); what follows the last of them is
    a step that the end of the text cut off, and does not count.
    """
    runs, length = [], 0
    for was_drafted in drafted:
        if was_drafted:
            length += 1
        else:
            runs.append(length)
            length = 0
    return runs


def survival(runs: Iterable[int], depth: int) -> list[float]:
    """For i = 1 … depth, the share of steps that accepted at least i tokens; [] without steps."""
    lengths = list(runs)
    if not lengths:
        return []
    return [sum(length >= i for length in lengths) / len(lengths) for i in range(1, depth + 1)]


def extended(shares: Sequence[float], depth: int) -> list[float]:
    """`shares` as far as `depth`, the last conditional acceptance repeated beyond what was measured."""
    result = list(shares[:depth])
    if not result:
        return [0.0] * depth
    before = result[-2] if len(result) > 1 else 1.0
    ratio = result[-1] / before if before else 0.0
    while len(result) < depth:
        result.append(result[-1] * ratio)
    return result


def bound_speedup(shares: Sequence[float], step_times: Mapping[int, float]) -> float:
    """The speed-up over no drafts of an instant, free drafter with this acceptance, at its best depth.

    max over d of (1 + sum of the first d shares) * T(1) / T(d + 1), T(n) = `step_times`[n]; d = 0 is among
    the candidates. Raises KeyError without T(1).
    """
    first = step_times[1]
    depth = max(step_times) - 1
    gains = [1.0]
    for share in extended(shares, depth):
        gains.append(gains[-1] + share)
    return max(gains[n - 1] * first / seconds for n, seconds in step_times.items() if seconds > 0)
