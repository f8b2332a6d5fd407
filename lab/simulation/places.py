"""Possible places of a draft model, and the assumed time of its tokens."""

from dataclasses import dataclass, replace
from typing import Literal

from lab.simulation.cell import Cell
from lab.simulation.hardware import Hardware
from lab.simulation.simulated_back import BackSpec
from lab.simulation.text import CHAT_RECALL, DraftSkill

DraftSize = Literal["0.5B", "1B", "8B"]
_ROUND_TRIP_S = 0.0004
_CPU_SLOPE, _GPU_SLOPE = 0.15, 0.02
_SLOWEST = 4.0
"""The longest simulated time of a back's token, in steps."""
SMALL, LARGE = (0.5, 0.6, 0.7), (0.7, 0.8)
"""Usual acceptances of small draft models (0.5B, 1B) and of large ones (8B)."""


@dataclass(frozen=True, slots=True)
class DraftPlace:
    """A place for a draft model. token_s: seconds per token; None: in the engine.

    Unlike a CPU, a GPU does not interrupt decodes that have become useless.
    """

    name: str
    model: DraftSize
    token_s: float | None = None
    is_cpu: bool = False

    @property
    def acceptances(self) -> tuple[float, ...]:
        return LARGE if self.model == "8B" else SMALL

    def cell(self, hardware: Hardware, acceptance: float, n_tokens: int) -> Cell | None:
        """Return a cell with a draft model at this place; None: it does not fit, or takes far longer than a
        step.
        """
        target = Cell(hardware.steps, n_tokens=n_tokens)
        if self.token_s is None:
            token_s = hardware.draft_8b_s if self.model == "8B" else hardware.draft_1b_s
            return None if token_s is None else replace(target, inline=inline(token_s, acceptance))
        if self.token_s > _SLOWEST * hardware.steps.seconds(1):
            return None
        return replace(target, backs=(back(self.token_s, acceptance, is_cpu=self.is_cpu),))


SMALL_PLACES = (
    DraftPlace("engine", "1B"),
    DraftPlace("CPU 12 ms", "1B", 0.012, is_cpu=True),
    DraftPlace("CPU 4 ms", "0.5B", 0.004, is_cpu=True),
    DraftPlace("GPU 3 ms", "1B", 0.003),
)
LARGE_PLACES = (
    DraftPlace("engine", "8B"),
    DraftPlace("CPU 80 ms", "8B", 0.080, is_cpu=True),
    DraftPlace("GPU 10 ms", "8B", 0.010),
)


def back(token_s: float, acceptance: float, *, is_cpu: bool = True) -> BackSpec:
    """Return a back. All backs from this function guess the same."""
    skill = DraftSkill(acceptance, recall=CHAT_RECALL)
    slope = _CPU_SLOPE if is_cpu else _GPU_SLOPE
    return BackSpec(token_s, _ROUND_TRIP_S, skill, slope, can_interrupt=is_cpu)


def inline(token_s: float, acceptance: float) -> BackSpec:
    """Return a draft model in the engine."""
    return BackSpec(token_s, 0.0, DraftSkill(acceptance, recall=CHAT_RECALL), _GPU_SLOPE)
