"""`lead plan --device NAME`: expected speed on hardware that is not here, simulated from published T(n)."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lab.planning.arrangements import Machines, tokens_per_second
from lab.planning.measurements import wider_steps
from lab.planning.plan_report import aligned
from lab.simulation.cell import Cell
from lab.simulation.hardware import Hardware
from lab.simulation.places import LARGE_PLACES, SMALL_PLACES, DraftPlace
from shared.diagnostics.prospects import SECOND_BACK, prospect

Cells = Mapping[tuple[DraftPlace, float], Cell]
"""The cells to simulate, by place and acceptance."""
SimulateCells = Callable[[Sequence[Cell]], Sequence[float]]
"""Tokens per second of each cell."""
_N_TOKENS = 512
_WORTH = 0.02
"""A larger gain is not just the luck of a simulation."""
_WARNING = (
    "Simulated, not measured. Step times are published figures (see each source), and draft times are "
    "usual values. Acceptance is assumed (--acceptance). The round trip to a back takes {} ms "
    "(--round-trip)."
)
_COLUMNS = "Tokens/s (and speed-up), by draft model and its time per token:"
_GAPS = "A cell is empty if the acceptance is unusual for a draft model of this size."


@dataclass(frozen=True, slots=True)
class PlaceForecast:
    """The tokens per second of one client with a draft model at `place`, by acceptance."""

    place: DraftPlace
    token_s: float
    rates: Mapping[float, float]

    @property
    def middle(self) -> float:
        """The tokens per second at an acceptance that is usual for such a draft model."""
        return list(self.rates)[len(self.rates) // 2]


@dataclass(frozen=True, slots=True)
class SecondBack:
    """The gains of a second back at `place`: with the same draft model, and with another one equally often
    right.
    """

    place: PlaceForecast
    same: float
    other: float


@dataclass(frozen=True, slots=True)
class HardwarePlan:
    """Tokens per second of a target on `hardware`, alone and with drafts."""

    hardware: Hardware
    alone: float
    forecasts: Sequence[PlaceForecast]
    second: SecondBack | None

    def __str__(self) -> str:
        """Return paragraphs: the steps and their source, the prospect of backs, a table, advice."""
        found = prospect(dict(self.hardware.steps.points))
        parts = [f"{self._steps()}\n{found.value}", self._table(), *self._advice()]
        return "\n\n".join(parts)

    def to_json(self) -> dict[str, Any]:
        hardware = self.hardware
        return {
            "device": hardware.title,
            "source": hardware.source,
            "assumed": hardware.assumed,
            "step_ms": {n: round(1000 * seconds, 3) for n, seconds in hardware.steps.points},
            "prospect": prospect(dict(hardware.steps.points)).name.lower(),
            "alone": round(self.alone, 2),
            "arrangements": [
                {
                    "arrangement": _describe(each),
                    "tokens_per_second": {right: round(rate, 2) for right, rate in each.rates.items()},
                }
                for each in self.forecasts
            ],
        }

    def _steps(self) -> str:
        hardware, first = self.hardware, self.hardware.steps.seconds(1)
        wider = " and ".join(wider_steps({n: hardware.steps.seconds(n) for n in (1, 4, 8)}, (4, 8)))
        assumed = f"; assumed: {hardware.assumed}" if hardware.assumed else ""
        return (
            f"{hardware.title}: a step of one token takes {1000 * first:.3g} ms, {wider}. Source: "
            f"{hardware.source}{assumed}."
        )

    def _table(self) -> str:
        """Return tokens/s, and the speed-up: a row per place, a column per share of right drafts."""
        columns = sorted({right for each in self.forecasts for right in each.rates})
        rows = [
            ("", *(f"{right:.0%} right" for right in columns)),
            ("no draft model", *([f"{self.alone:.1f} (1.00)"] * len(columns))),
            *((_describe(each), *(self._rate(each, right) for right in columns)) for each in self.forecasts),
        ]
        gaps = [_GAPS] if any(len(each.rates) < len(columns) for each in self.forecasts) else []
        return "\n".join([_COLUMNS, "", aligned(rows, 14), *gaps])

    def _rate(self, each: PlaceForecast, right: float) -> str:
        rate = each.rates.get(right)
        return "" if rate is None else f"{rate:.1f} ({rate / self.alone:.2f})"

    def _advice(self) -> Iterator[str]:
        on_cpu = {each.place.model: each for each in self.forecasts if each.place.is_cpu}
        if {"1B", "8B"} <= on_cpu.keys():
            (small, words), (large, others) = (self._usual(on_cpu[model]) for model in ("1B", "8B"))
            if small > large * (1 + _WORTH):
                yield f"For a back, speed matters more than acceptance. On the same CPU {words}, {others}."
        if self.second:
            same, other = 100 * (self.second.same - 1), 100 * (self.second.other - 1)
            words = (
                f"A second back beside the {_describe(self.second.place)}, adds {round(same)} % "
                f"with the same draft model and {round(other)} % with another model."
            )
            yield f"{words} {SECOND_BACK}" if other > same + 100 * _WORTH else words

    def _usual(self, each: PlaceForecast) -> tuple[float, str]:
        """Return the speed-up at the middle acceptance, and a sentence with it."""
        gain = each.rates[each.middle] / self.alone
        model = f"an {each.place.model}" if each.place.model == "8B" else f"a {each.place.model}"
        return gain, f"{model} with an acceptance of {each.middle:.0%} gives a speed-up of {gain:.2f}"


@dataclass(frozen=True, slots=True)
class HardwareReport:
    """A plan for each type of weights whose T(n) is known. machines: see `simulate_plan`."""

    plans: Sequence[HardwarePlan]
    machines: Machines

    def __str__(self) -> str:
        warning = _WARNING.format(f"{1000 * self.machines.round_trip_s:g}")
        return "\n\n\n".join([warning, *map(str, self.plans)])

    def to_json(self) -> str:
        return json.dumps({"simulated": [plan.to_json() for plan in self.plans]})


def simulate_plan(
    hardware: Hardware, machines: Machines, acceptance: float | None, simulate_cells: SimulateCells
) -> HardwarePlan:
    """Simulate a plan. machines: round-trip times of backs, and their speed relative to the usual one.

    acceptance: every draft model's; None: usual values.
    """
    cells = {
        (place, right): _there(cell, hardware, machines)
        for place in (*SMALL_PLACES, *LARGE_PLACES)
        for right in (place.acceptances if acceptance is None else (acceptance,))
        if (cell := place.cell(hardware, right, _N_TOKENS))
    }
    alone, *rates = simulate_cells(
        [Cell(hardware.steps, n_tokens=_N_TOKENS, host=hardware.host), *cells.values()]
    )
    found: dict[DraftPlace, dict[float, float]] = {}
    for (place, right), rate in zip(cells, rates, strict=True):
        found.setdefault(place, {})[right] = rate
    forecasts = [PlaceForecast(place, _token_s(cells, place), each) for place, each in found.items()]
    return HardwarePlan(hardware, alone, forecasts, _second(cells, forecasts, alone, simulate_cells))


def _there(cell: Cell, hardware: Hardware, machines: Machines) -> Cell:
    """Return the cell on this hardware, with the backs' round trips and speeds from `machines`."""
    backs = tuple(
        replace(each, step_s=each.step_s / machines.speed, rtt_s=machines.round_trip_s) for each in cell.backs
    )
    return replace(cell, backs=backs, host=hardware.host)


def _token_s(cells: Cells, place: DraftPlace) -> float:
    cell = next(cell for (each, _), cell in cells.items() if each == place)
    return (cell.inline or cell.backs[0]).step_s


def _second(
    cells: Cells, forecasts: Sequence[PlaceForecast], alone: float, simulate_cells: SimulateCells
) -> SecondBack | None:
    """Return the gains of a second back beside the best one; None if no back gives a gain."""
    backs = [each for each in forecasts if each.place.token_s]
    best = max(backs, key=lambda each: each.rates[each.middle], default=None)
    if best is None or best.rates[best.middle] < alone * (1 + _WORTH):
        return None
    cell = cells[best.place, best.middle]
    (one,) = cell.backs
    other = replace(one, skill=replace(one.skill, number=1))
    same, different = simulate_cells([replace(cell, backs=(one, each)) for each in (one, other)])
    return SecondBack(best, same / best.rates[best.middle], different / best.rates[best.middle])


def rate_of(cell: Cell) -> float:
    """Return tokens per second of a simulated cell."""
    return tokens_per_second(cell, "adaptive" if cell.backs or cell.inline else "off")


def _describe(each: PlaceForecast) -> str:
    where = (
        "back on a CPU" if each.place.is_cpu else "back on a GPU" if each.place.token_s else "in the engine"
    )
    return f"{where}: {each.place.model}, {1000 * each.token_s:.3g} ms"
