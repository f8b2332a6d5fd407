"""Cells for devices that are not available here: references for comparison, and drafts that do not pay."""

from dataclasses import replace

from lab.simulation.cell import Cell
from lab.simulation.hardware import Hardware
from lab.simulation.machine import HOST
from lab.simulation.places import back, inline
from lab.simulation.text import DraftSkill

_STOPPED = 30.0
"""Steps until a back stops: what it has been worth is known by then."""


def synchronous(hardware: Hardware, token_s: float, acceptance: float) -> float:
    """Return the speed-up over no drafts if n tokens are drafted in the engine before each step, for the best
    n.
    """
    alone = hardware.steps.seconds(1) + HOST.of_step(0, plans=False)
    return max(
        alone
        * sum(acceptance**i for i in range(depth + 1))
        / (hardware.steps.seconds(depth + 1) + depth * token_s + HOST.of_step(depth, plans=True))
        for depth in range(1, 13)
    )


def without_gain(hardware: Hardware, n_tokens: int) -> dict[str, Cell]:
    """Return cells with drafts that do not pay; the lead must be as fast as without them."""
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
    """Return cells of backs with two draft models that are right equally often: both, and each alone."""
    target = Cell(hardware.steps, n_tokens=n_tokens)
    one, other = (back(0.010, acceptance, number, is_cpu=False) for number in (0, 1))
    cells = (replace(target, backs=backs) for backs in ((one, other), (one,), (other,)))
    both, first, second = cells
    return both, first, second
