"""What is measured on this machine, to predict speeds from it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

_Z = 1.96
"""Quantile of the normal distribution for a confidence of 95 %."""


@dataclass(frozen=True, slots=True)
class AcceptanceRate:
    """How often the next token of a drafter is the target's: `n_right` of `n_positions`, at least one."""

    n_right: int
    n_positions: int

    @property
    def value(self) -> float:
        return self.n_right / self.n_positions

    def interval(self) -> tuple[float, float]:
        """(low, high) with a confidence of 95 % if positions are independent: Wilson's score interval."""
        n, p = self.n_positions, self.value
        centre = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z / (1 + _Z**2 / n) * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
        return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True, slots=True)
class DrafterTimes:
    """A drafter inside the engine: seconds of a round of one token, of which `outside_s` are not the decode.

    `slope`: each further token in the batch takes that part of the first one's time.
    """

    token_s: float
    outside_s: float
    slope: float
    acceptance: AcceptanceRate | None


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """The target on all cores: T(n) in seconds, choosing included; drafters by their source.

    settling: as `StepCost.settling` of a GPU; empty on a CPU, where a change of width costs nothing.
    """

    steps: Mapping[int, float]
    choose_s: float = 0.0
    drafters: Mapping[str, DrafterTimes] = field(default_factory=dict)
    speculates: bool = True
    is_offloaded: bool = False
    settling: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class CoreSplit:
    """Lead and back on cores of their own. back_on_cpu: unlike the lead, which has a GPU."""

    lead_cpus: tuple[int, ...]
    back_cpus: tuple[int, ...]
    back_on_cpu: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class SplitTimes(CoreSplit):
    """Alone, a step takes `steps` and a decode of the draft model `token_s`.

    While the other computes, they take `lead_factor` and `back_factor` times as long.
    """

    steps: Mapping[int, float]
    token_s: float
    lead_factor: float
    back_factor: float


@dataclass(frozen=True, slots=True)
class PairTimes:
    """The target with one draft model; `draft_model` names it where there are several."""

    engine: EngineTimes
    splits: Sequence[SplitTimes] = ()
    draft_model: str = ""


def with_common_steps(pairs: Sequence[PairTimes]) -> list[PairTimes]:
    """With means of T(n): the target is the same for each draft model, and so are its steps on a CPU.

    On a GPU a draft model takes memory of the target's layers.
    """
    if any(pair.engine.is_offloaded for pair in pairs):
        return list(pairs)
    steps = _mean([pair.engine.steps for pair in pairs])
    on_cores: dict[tuple[int, ...], list[Mapping[int, float]]] = {}
    for split in (split for pair in pairs for split in pair.splits):
        on_cores.setdefault(split.lead_cpus, []).append(split.steps)
    return [
        replace(
            pair,
            engine=replace(pair.engine, steps=steps),
            splits=[replace(split, steps=_mean(on_cores[split.lead_cpus])) for split in pair.splits],
        )
        for pair in pairs
    ]


def wider_steps(steps: Mapping[int, float], sizes: Sequence[int]) -> list[str]:
    """T(n) over T(1), in words, of the sizes that are known."""
    return [f"{steps[n] / steps[1]:.2f} times as long with {n}" for n in sizes if n in steps]


def _mean(measured: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Of the sizes that all have."""
    common = set.intersection(*map(set, measured))
    return {n: fmean(each[n] for each in measured) for n in sorted(common)}
