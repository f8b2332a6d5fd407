"""Measurements on this machine from which speeds are predicted."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import psutil

_BUSY = 0.5
"""The number of cores that other programs may use before measurements are doubtful."""
_Z = 1.96
"""Quantile of the normal distribution for a confidence of 95 %."""


@dataclass(frozen=True, slots=True)
class AcceptanceRate:
    """A drafter's share of right guesses of the next token: `n_right` of at least 1 `n_positions`."""

    n_right: int
    n_positions: int

    @property
    def value(self) -> float:
        return self.n_right / self.n_positions

    def interval(self) -> tuple[float, float]:
        """Return (low, high), Wilson's score interval with a confidence of 95 %, if positions are
        independent.
        """
        n, p = self.n_positions, self.value
        center = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z / (1 + _Z**2 / n) * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
        return max(0.0, center - half), min(1.0, center + half)


@dataclass(frozen=True, slots=True)
class DrafterTimes:
    """The seconds of a round of one token in the engine, of which `outside_s` are spent outside the decode.

    slope: each further token of a batch takes this share of the first token's time.
    """

    token_s: float
    outside_s: float
    slope: float
    acceptance: AcceptanceRate | None


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """The target on all cores. steps: T(n) in seconds, sampling included. drafters: the drafters in the
    engine by source.

    settling: as `StepCost.settling` of a GPU; empty on a CPU, where changing the batch size costs nothing.
    """

    steps: Mapping[int, float]
    choose_s: float = 0.0
    drafters: Mapping[str, DrafterTimes] = field(default_factory=dict)
    speculates: bool = True
    is_offloaded: bool = False
    settling: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class CoreSplit:
    """Lead and back on separate cores. back_on_cpu: the back is on the CPU, while the lead has a GPU."""

    lead_cpus: tuple[int, ...]
    back_cpus: tuple[int, ...]
    back_on_cpu: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class SplitTimes(CoreSplit):
    """Seconds of a step (`steps`) and of a draft decode (`token_s`), each alone.

    While both compute, they take `lead_factor` and `back_factor` times as long.
    """

    steps: Mapping[int, float]
    token_s: float
    lead_factor: float
    back_factor: float


@dataclass(frozen=True, slots=True)
class PairTimes:
    """The times of the target with one draft model. draft_model: its name, if there are several."""

    engine: EngineTimes
    splits: Sequence[SplitTimes] = ()
    draft_model: str = ""


def with_common_steps(pairs: Sequence[PairTimes]) -> list[PairTimes]:
    """Return the pairs with T(n) replaced by the mean over all pairs: on a CPU the target's steps do not
    depend on the draft model.

    On a GPU they do, as a draft model takes memory from the target's layers.
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
    """Return a phrase such as `1.20 times as long with 4` (T(n) / T(1), n) for each known size."""
    return [f"{steps[n] / steps[1]:.2f} times as long with {n}" for n in sizes if n in steps]


def busy_cores() -> float:
    """Return the mean number of cores in use during half a second, unlike a load average."""
    return psutil.cpu_percent(0.5) / 100 * (psutil.cpu_count() or 1)


def busy_warnings(busy: float) -> list[str]:
    """Return a sentence if the `busy_cores` before the measurements have probably slowed them down."""
    if busy <= _BUSY:
        return []
    found = f"other programs used {busy:.1f} cores at the start"
    return [f"These figures may be far off, because {found}. Measure again without these programs."]


def _mean(measured: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the mean table of T(n), for the sizes that all tables have."""
    common = set.intersection(*map(set, measured))
    return {n: fmean(each[n] for each in measured) for n in sorted(common)}
