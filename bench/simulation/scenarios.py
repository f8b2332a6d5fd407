"""What is simulated: measured tables of T(n), and machines that are not here.

Sources of the tables: docs/performance.md (f16, q8_0); a 1.1B model in q8_0, measured on a core with AVX-512;
`steep`: f16 on a Zen 5 core, which reads the weights for one token nearly as fast as memory allows.
For GPUs and mixtures of experts `FLAT` and `EXPERTS` are the shapes that they are known for. `PUBLISHED` are
figures of others: n tokens in a step over the tokens per second of llama-bench or llama-batched-bench in pull
requests of ggml-org/llama.cpp.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from lead.simulation.cell import Cell
from lead.simulation.hardware import H200_20GB
from lead.simulation.machine import StepTable
from lead.simulation.simulated_back import BackSpec
from lead.simulation.text import DraftSkill
from shared.errors import ConfigError


def _table(name: str, first_ms: float, *ratios: float) -> StepTable:
    """T(1) in milliseconds, and T(n) / T(1) for n = 1, 2, …"""
    return StepTable(name, tuple((n, first_ms * ratio / 1000) for n, ratio in enumerate(ratios, 1)))


F16 = _table("f16", 53, 1, 0.98, 1.05, 1.32, 1.38, 1.62, 1.76, 2.1)
Q8_0 = _table("q8_0", 33, 1, 1.5, 2.45, 2.4, 3.2, 3.0, 4.0, 3.9)
BIG_CPU = _table("1.1B q8_0", 70, 1, 0.98, 1.12, 1.27, 1.96, 2.19, 2.1, 2.04)
STEEP = _table("steep", 17, 1, 1.75, 1.75, 1.9, 2.0, 2.1, 2.45, 2.95)
FLAT = _table("flat", 60, 1, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07, 1.3, 1.32)
EXPERTS = _table("experts", 40, 1, 2.6, 2.8, 3.0, 3.1, 3.2, 3.3, 3.4)
H200 = H200_20GB.steps
"""20 GB in Q4_0: steeper with each token up to 8, then flat."""


def _published(name: str, per_second: Mapping[int, float]) -> StepTable:
    return StepTable(name, tuple((n, n / rate) for n, rate in per_second.items()))


PUBLISHED = (
    _published(  # flat: #15131, 8B BF16
        "RTX 4090",
        {1: 65.2, 2: 124.3, 3: 185.2, 4: 246.4, 5: 304.1, 6: 363.2, 7: 420.8, 8: 485.2, 9: 529.0},
    ),
    _published(  # steeper with each token: #15802, 8B Q4_0
        "RTX 3090", {1: 155.0, 2: 279.9, 3: 391.0, 4: 470.5, 5: 509.7, 6: 541.6, 7: 559.3, 8: 583.8}
    ),
    _published("M2 Ultra", {1: 79.0, 2: 136.4, 4: 224.5}),  # #16894, 7B Q8_0
    _published(  # a step at two tokens, then flat: #3545, 7B F16
        "V100", {1: 52.2, 2: 48.5, 3: 69.0, 4: 90.4, 5: 105.2, 6: 120.4, 7: 134.2, 8: 149.8}
    ),
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A target here, a draft model there."""

    name: str
    steps: StepTable
    draft_s: float
    acceptance: float

    def cell(self, rtt_s: float, n_backs: int, n_tokens: int) -> Cell:
        """Each back with a draft model of its own: equal ones say the same, so a second one adds nothing."""
        backs = tuple(BackSpec(self.draft_s, rtt_s, DraftSkill(self.acceptance, i)) for i in range(n_backs))
        return Cell(self.steps, backs, n_tokens=n_tokens)


def _scaled(steps: StepTable, first_ms: float) -> StepTable:
    return _table(steps.name, first_ms, *(seconds / steps.seconds(1) for _, seconds in steps.points))


def read_table(path: Path) -> StepTable:
    """A JSON object n → milliseconds, alone or as `step_ms` (as in `GET /v1/speculation`).

    Raises ConfigError unless n = 1 is there and all numbers make sense.
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


@dataclass(frozen=True, slots=True)
class Grid:
    """Every combination. `costs`: a draft step's time over T(1)."""

    tables: tuple[StepTable, ...]
    acceptances: tuple[float, ...]
    costs: tuple[float, ...]
    rtts_ms: tuple[float, ...]
    n_clients: tuple[int, ...] = (1,)
    n_tokens: int = 1024

    def cells(self) -> Iterator[Cell]:
        """With one back each."""
        axes = product(self.tables, self.acceptances, self.costs, self.rtts_ms, self.n_clients)
        for steps, acceptance, cost, rtt_ms, n_clients in axes:
            back = BackSpec(cost * steps.seconds(1), rtt_ms / 1000, DraftSkill(acceptance))
            yield Cell(steps, (back,), n_clients, max(256, self.n_tokens // n_clients))


def useless_backs(steps: StepTable, n_tokens: int) -> dict[str, Cell]:
    """Backs that do not help, by what is wrong with them; the lead must be as fast as without."""
    good = BackSpec(0.02 * steps.seconds(1), 0.002, DraftSkill(0.75))
    wrong = {
        "random tokens, sure of them": replace(good, skill=DraftSkill(0.75, honest=False)),
        "stopped while answering": replace(good, silent_from=1.0),
        "never answers": replace(good, silent_from=0.0),
        "10 times too slow": replace(good, step_s=10 * steps.seconds(1)),
        "1.5 times too slow": replace(good, step_s=1.5 * steps.seconds(1)),
        "five seconds away": replace(good, rtt_s=5.0),
    }
    return {name: Cell(steps, (back,), n_tokens=n_tokens) for name, back in wrong.items()}


def unequal_backs(steps: StepTable, n_tokens: int) -> dict[str, tuple[Cell, ...]]:
    """(both, one alone, the other alone), by what is unequal."""
    first = steps.seconds(1)
    pairs = {
        "a quick one and a good one": (
            BackSpec(0.02 * first, 0.002, DraftSkill(0.6)),
            BackSpec(0.2 * first, 0.002, DraftSkill(0.85, 1)),
        ),
        "the same model, near and far": (
            BackSpec(0.1 * first, 0.002, DraftSkill(0.75)),
            BackSpec(0.1 * first, 0.05, DraftSkill(0.75)),
        ),
        "a good one and a liar": (
            BackSpec(0.1 * first, 0.002, DraftSkill(0.75)),
            BackSpec(0.02 * first, 0.002, DraftSkill(0.75, 1, honest=False)),
        ),
        "a good one and a slow one": (
            BackSpec(0.1 * first, 0.002, DraftSkill(0.75)),
            BackSpec(3.0 * first, 0.002, DraftSkill(0.8, 1)),
        ),
    }
    return {
        name: tuple(Cell(steps, backs, n_tokens=n_tokens) for backs in ((one, other), (one,), (other,)))
        for name, (one, other) in pairs.items()
    }
