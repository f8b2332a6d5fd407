"""Cells of hardware that is not here: a target on it, and the places where a draft model may run."""

from dataclasses import dataclass, replace
from typing import Literal

from bench.simulation.scenarios import RECALLS
from lead.simulation.cell import Cell
from lead.simulation.hardware import Hardware
from lead.simulation.machine import HOST
from lead.simulation.simulated_back import BackSpec
from lead.simulation.text import DraftSkill

DraftModel = Literal["small", "8B"]
_ROUND_TRIP_S = 0.0004
_CPU_SLOPE, _GPU_SLOPE = 0.15, 0.02
_STOPPED = 30.0
"""Steps until a back stops: what it has been worth is known by then."""
_SLOWEST = 4.0
"""Steps that a back's token may take, of those that are simulated."""
SMALL, LARGE = (0.5, 0.6, 0.7), (0.7, 0.8)
"""How often such draft models are right."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a draft model runs. token_s: None: in the engine.

    A GPU does not stop decodes that have become useless, as a CPU does.
    """

    name: str
    model: DraftModel
    token_s: float | None = None
    is_cpu: bool = False

    @property
    def acceptances(self) -> tuple[float, ...]:
        return SMALL if self.model == "small" else LARGE

    def engine_token(self, hardware: Hardware) -> float | None:
        """Seconds of a token of this model in the engine; None: it does not fit."""
        return hardware.draft_1b_s if self.model == "small" else hardware.draft_8b_s

    def cell(self, hardware: Hardware, acceptance: float, n_tokens: int) -> Cell | None:
        """None: it does not fit, or takes far longer than a step."""
        target = Cell(hardware.steps, n_tokens=n_tokens)
        if self.token_s is None:
            token_s = self.engine_token(hardware)
            return None if token_s is None else replace(target, inline=inline(token_s, acceptance))
        if self.token_s > _SLOWEST * hardware.steps.seconds(1):
            return None
        return replace(target, backs=(back(self.token_s, acceptance, is_cpu=self.is_cpu),))


SMALL_PLACES = (
    Place("engine", "small"),
    Place("CPU 12 ms", "small", 0.012, is_cpu=True),
    Place("CPU 4 ms", "small", 0.004, is_cpu=True),
    Place("GPU 3 ms", "small", 0.003),
)
LARGE_PLACES = (
    Place("engine", "8B"),
    Place("CPU 80 ms", "8B", 0.080, is_cpu=True),
    Place("GPU 10 ms", "8B", 0.010),
)


def back(token_s: float, acceptance: float, number: int = 0, *, is_cpu: bool = True) -> BackSpec:
    """number: of its draft model; those with equal ones guess alike."""
    skill = DraftSkill(acceptance, number, recall=RECALLS["chat"])
    slope = _CPU_SLOPE if is_cpu else _GPU_SLOPE
    return BackSpec(token_s, _ROUND_TRIP_S, skill, slope, can_interrupt=is_cpu)


def inline(token_s: float, acceptance: float) -> BackSpec:
    """A draft model in the engine."""
    return BackSpec(token_s, 0.0, DraftSkill(acceptance, recall=RECALLS["chat"]), _GPU_SLOPE)


def synchronous(hardware: Hardware, token_s: float, acceptance: float) -> float:
    """Over no drafts, at the best depth: so many tokens drafted in the engine before each step."""
    alone = hardware.steps.seconds(1) + HOST.of_step(0, plans=False)
    return max(
        alone
        * sum(acceptance**i for i in range(depth + 1))
        / (hardware.steps.seconds(depth + 1) + depth * token_s + HOST.of_step(depth, plans=True))
        for depth in range(1, 13)
    )


def without_gain(hardware: Hardware, n_tokens: int) -> dict[str, Cell]:
    """Drafts that hardly pay, or not at all; the lead must be as fast as without."""
    target = Cell(hardware.steps, n_tokens=n_tokens)
    good, first = back(0.004, 0.7), hardware.steps.seconds(1)
    token_s = hardware.draft_1b_s or 0.002
    return {
        "useless back": replace(target, backs=(replace(good, skill=DraftSkill(0.7, honest=False)),)),
        "back, .3": replace(target, backs=(back(0.004, 0.3),)),
        "stopped back": replace(target, backs=(replace(good, silent_from=_STOPPED * first),)),
        "engine, .3": replace(target, inline=inline(token_s, 0.3)),
        "engine, .5": replace(target, inline=inline(token_s, 0.5)),
    }


def two_models(hardware: Hardware, acceptance: float, n_tokens: int) -> tuple[Cell, Cell, Cell]:
    """Backs with two draft models that are as often right: both, and each alone."""
    target = Cell(hardware.steps, n_tokens=n_tokens)
    one, other = (back(0.010, acceptance, number, is_cpu=False) for number in (0, 1))
    cells = (replace(target, backs=backs) for backs in ((one, other), (one,), (other,)))
    both, first, second = cells
    return both, first, second
