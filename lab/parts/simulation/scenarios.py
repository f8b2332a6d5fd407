"""The scenarios to simulate: measured tables of T(n), and machines that are not available.

Sources of the tables: docs/performance.md (f16, q8_0); a 1.1B model in q8_0, measured on a core with AVX-512.
For GPUs and mixtures of experts, `FLAT` and `EXPERTS` have typical shapes. `PUBLISHED` has figures of real
devices (`lab.simulation.hardware`).
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from lab.simulation.cell import Cell
from lab.simulation.hardware import H200_20GB, M2_ULTRA, RTX_3090_PAIR, RTX_4090
from lab.simulation.machine import StepTable
from lab.simulation.simulated_back import BackSpec
from lab.simulation.text import DraftSkill
from shared.errors import ConfigError


def _table(name: str, first_ms: float, *ratios: float) -> StepTable:
    """Return a table of T(n) from T(1) in milliseconds, and T(n) / T(1) for n = 1, 2, …"""
    return StepTable(name, tuple((n, first_ms * ratio / 1000) for n, ratio in enumerate(ratios, 1)))


F16 = _table("f16", 53, 1, 0.98, 1.05, 1.32, 1.38, 1.62, 1.76, 2.1)
Q8_0 = _table("q8_0", 33, 1, 1.5, 2.45, 2.4, 3.2, 3.0, 4.0, 3.9)
BIG_CPU = _table("1.1B q8_0", 70, 1, 0.98, 1.12, 1.27, 1.96, 2.19, 2.1, 2.04)
FLAT = _table("flat", 60, 1, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07, 1.3, 1.32)
EXPERTS = _table("experts", 40, 1, 2.6, 2.8, 3.0, 3.1, 3.2, 3.3, 3.4)
V100 = _table("V100", 19.16, 1, 2.153, 2.27, 2.31, 2.481, 2.601, 2.722, 2.787)
"""A step at two tokens, then flat: 7B F16 (ggml-org/llama.cpp#3545)."""
PUBLISHED = (V100, *(each.steps for each in (RTX_4090, RTX_3090_PAIR, M2_ULTRA, H200_20GB)))


@dataclass(frozen=True, slots=True)
class Pair:
    """A target on the lead, and a draft model on another machine."""

    name: str
    steps: StepTable
    draft_s: float
    acceptance: float

    def cell(self, rtt_s: float, n_backs: int, n_tokens: int) -> Cell:
        """Return a cell in which each back has its own draft model; with equal models a second back adds
        nothing.
        """
        backs = tuple(BackSpec(self.draft_s, rtt_s, DraftSkill(self.acceptance, i)) for i in range(n_backs))
        return Cell(self.steps, backs, n_tokens=n_tokens)


def _scaled(steps: StepTable, first_ms: float) -> StepTable:
    return _table(steps.name, first_ms, *(seconds / steps.seconds(1) for _, seconds in steps.points))


def read_table(path: Path) -> StepTable:
    """Read a JSON object n → milliseconds, alone or as `step_ms` (as in `GET /v1/speculation`).

    Raises ConfigError unless n = 1 is present and all numbers are plausible.
    """
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        seconds = {int(n): float(ms) / 1000 for n, ms in table.get("step_ms", table).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: not a JSON object of step times in ms by n: {error}") from error
    if 1 not in seconds or not all(n > 0 and 0 < each < math.inf for n, each in seconds.items()):
        raise ConfigError(f"{path}: a table of step times needs n = 1, and times above 0 ms for all n > 0")
    return StepTable(path.stem, tuple(sorted(seconds.items())))


PAIRS = (
    Pair("70B on a GPU + 8B on a CPU", _scaled(FLAT, 60), 0.120, 0.8),
    Pair("70B on a GPU + 1B on a CPU", _scaled(FLAT, 60), 0.020, 0.7),
    Pair("70B on a CPU + 8B on a CPU", _scaled(BIG_CPU, 900), 0.120, 0.8),
    Pair("8B on a CPU + 0.5B on a CPU", _scaled(BIG_CPU, 100), 0.012, 0.65),
)
RTTS_MS = (0.2, 2.0, 20.0, 100.0)
BACKS = (1, 2, 4, 16)


def policy_cells(n_tokens: int, *, quick: bool) -> list[Cell]:
    """Return cells with one back each, in which policies are compared."""
    far = (0.0, 20.0, 100.0)
    grids: list[tuple[Sequence[StepTable], Sequence[float], Sequence[float], Sequence[float]]] = [
        ((F16, BIG_CPU, FLAT), (0.6, 0.85), (0.003, 0.02, 0.1, 0.3, 0.6), far),
        ((Q8_0, EXPERTS), (0.75,), (0.02, 0.3), (0.0, 20.0)),
        (PUBLISHED, (0.75,), (0.1, 0.5), (0.2, 20.0)),
    ]
    if quick:
        grids = [((F16, FLAT), (0.75,), (0.02, 0.1, 0.3), (0.0, 20.0))]
    return [
        # cost: a draft step's time over T(1)
        Cell(
            steps,
            (BackSpec(cost * steps.seconds(1), rtt_ms / 1000, DraftSkill(right)),),
            n_tokens=max(256, n_tokens),
        )
        for grid in grids
        for steps, right, cost, rtt_ms in product(*grid)
    ]
