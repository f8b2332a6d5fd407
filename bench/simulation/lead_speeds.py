"""How fast a lead is with some sequences and some drafting power: simulated exactly, then interpolated.

The drafting power of a lead is in backs: 0.5 is half of a back's time. A back that has half of its time is
simulated as one that takes twice as long for a decode.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.simulation.exact_fleet import ExactFleet
from bench.simulation.fleet_spec import FleetOutcome, FleetSpec

Floats = NDArray[np.float64]

POWERS = (0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
_WARM_UP_S, _SECONDS = 10.0, 30.0
_N_SEEDS = 2


class Speeds(NamedTuple):
    """Of each lead, in tokens per second; `busy`: how many backs compute for it on average."""

    generated: Floats
    drafted: Floats
    accepted: Floats
    busy: Floats


@dataclass(frozen=True, slots=True)
class LeadSpeeds:
    """`values[acceptance, sequences, power, …]`, the last axis as in `Speeds`; no sequences: all 0."""

    n_running: tuple[int, ...]
    values: Floats

    @classmethod
    def simulate(cls, spec: FleetSpec, n_jobs: int = 0) -> "LeadSpeeds":
        """Every combination; in `n_jobs` processes (0: one per core)."""
        n_running = _counts(spec.n_slots)
        cells = [
            (replace(spec, n_leads=1, acceptances=(acceptance,)), n, power)
            for acceptance, n, power in product(spec.acceptances, n_running[1:], POWERS)
        ]
        with ProcessPoolExecutor(n_jobs or len(os.sched_getaffinity(0))) as pool:
            found = np.array(list(pool.map(_simulate, cells)))
        shape = (len(spec.acceptances), len(n_running) - 1, len(POWERS), 4)
        idle = np.zeros((shape[0], 1, *shape[2:]))
        return cls(n_running, np.concatenate([idle, found.reshape(shape)], axis=1))

    def at(self, kind: NDArray[np.intp], n_running: NDArray[np.intp], power: Floats) -> Speeds:
        """Of many leads; `kind` is the number of their acceptance. Straight lines between what is known."""
        i, n_part = _between(self.n_running, n_running)
        j, power_part = _between(POWERS, power)
        corners = self.values
        n_part, power_part = n_part[:, None], power_part[:, None]
        low = corners[kind, i, j] * (1 - power_part) + corners[kind, i, j + 1] * power_part
        high = corners[kind, i + 1, j] * (1 - power_part) + corners[kind, i + 1, j + 1] * power_part
        return Speeds(*np.moveaxis(low * (1 - n_part) + high * n_part, -1, 0))

    def gain(self, kind: int) -> float:
        """Tokens per second that a back adds to a lead with one sequence."""
        alone, with_one = self.values[kind, 1, 0, 0], self.values[kind, 1, POWERS.index(1.0), 0]
        return float(max(0.0, with_one - alone))

    def sequences_per_back(self) -> float:
        """For how many a back drafts before a further one would halve what each gains."""
        gains = self.values[:, 1:, POWERS.index(1.0), 0] - self.values[:, 1:, 0, 0]
        per_sequence = (gains / np.array(self.n_running[1:])).mean(axis=0)
        enough = per_sequence >= per_sequence[0] / 2
        return float(max(n for n, is_enough in zip(self.n_running[1:], enough, strict=True) if is_enough))


def _counts(n_slots: int) -> tuple[int, ...]:
    """0, 1, 2, 4, … and the number of slots."""
    powers = [2**i for i in range(n_slots.bit_length()) if 2**i < n_slots]
    return (0, *powers, n_slots)


def _between(points: Sequence[float], values: NDArray[np.intp] | Floats) -> tuple[NDArray[np.intp], Floats]:
    """For each value the number of the point below it, and how far it is to the next one, from 0 to 1."""
    known = np.array(points, dtype=float)
    below = np.clip(np.searchsorted(known, values, side="right") - 1, 0, len(known) - 2)
    part = (values - known[below]) / (known[below + 1] - known[below])
    return below, np.clip(part, 0.0, 1.0)


def _simulate(cell: tuple[FleetSpec, int, float]) -> tuple[float, float, float, float]:
    """Means of generated, drafted, accepted tokens and of backs at work in a second."""
    spec, n_clients, power = cell
    n_backs = int(power) if power >= 1 else int(power > 0)
    back = replace(spec.back, step_s=spec.back.step_s / power) if 0 < power < 1 else spec.back
    spec = replace(spec, n_backs=n_backs, back=back)
    outcomes = [
        ExactFleet(spec, (n_clients,), seed=seed).run(_WARM_UP_S, _SECONDS) for seed in range(_N_SEEDS)
    ]
    seconds = sum(each.seconds for each in outcomes)
    share = power if power < 1 else 1.0
    return (
        _sum(outcomes, "n_tokens") / seconds,
        _sum(outcomes, "n_drafted") / seconds,
        _sum(outcomes, "n_accepted") / seconds,
        share * _sum(outcomes, "back_seconds") / seconds,
    )


def _sum(outcomes: Sequence[FleetOutcome], name: str) -> float:
    return sum(float(getattr(outcome, name)) for outcome in outcomes)
