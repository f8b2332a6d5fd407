"""What `bench speed` measured, simulated: how far can the simulation be believed?"""

import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.simulation.contest import OFF, Result, Way, contest
from lead.simulation.cell import Cell
from lead.simulation.machine import StepTable
from lead.simulation.simulated_back import BackSpec
from lead.simulation.text import DraftSkill
from shared.errors import ConfigError

_CONFIGURATION = re.compile(
    r"(?P<target>\S+), draft (?P<cost>[^\s,]+), T=[^\s,]+(, (?P<backs>\d+) backs)?(, (?P<rtt>[\d.]+) ms)?"
)
_WAY = re.compile(r"(adaptive)|(sync|fixed) (\d+)")
_N_TOKENS = 1536
_LEAST, _MOST = 0.01, 0.99


@dataclass(frozen=True, slots=True)
class Measured:
    """One configuration of `bench speed`: the cell that stands for it, and its speed-ups by way."""

    name: str
    cell: Cell
    speedups: dict[Way, float]


def read(path: Path) -> list[Measured]:
    """The configurations with one or more backs in a result of `bench speed --json`. Raises ConfigError."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        names = dict.fromkeys(row["configuration"] for row in result["rows"])
        measured = [_measured(name, result) for name in names]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: not a result of `bench speed --json`: {error!r}") from error
    known = [each for each in measured if each]
    if not known:
        raise ConfigError(f"{path}: nothing in it was measured with a back and with sync at some depth")
    return known


def validate(measured: Sequence[Measured], n_jobs: int = 0) -> list[dict[str, Any]]:
    """A row for each way of each configuration: measured, predicted, and predicted over measured."""
    rows: list[dict[str, Any]] = []
    for each in measured:
        ways = tuple(each.speedups)
        (result,) = contest([each.cell], (OFF, *ways), n_jobs)
        rows += [_row(each, way, result) for way in ways]
    return rows


def _row(each: Measured, way: Way, result: Result) -> dict[str, Any]:
    measured, predicted = each.speedups[way], result.speedup(way)
    return {
        "configuration": each.name,
        "way": str(way),
        "measured": round(measured, 3),
        "predicted": round(predicted, 3),
        "predicted_to_measured": round(predicted / measured, 3),
    }


def _measured(name: str, result: dict[str, Any]) -> Measured | None:
    match = _CONFIGURATION.fullmatch(name)
    rows = {
        way: row
        for row in result["rows"]
        if row["configuration"] == name and row["speedup"] and (way := _way(row["way"]))
    }
    acceptance = _acceptance(rows)
    if match is None or acceptance is None:
        return None
    steps = {int(n): 1000 * float(seconds) for n, seconds in result["step_seconds"][match["target"]].items()}
    table = StepTable.of_milliseconds(match["target"], steps)
    cost = result["draft_costs"][f"{match['target']} {match['cost']}"]
    back = BackSpec(cost * table.first, float(match["rtt"] or 0) / 1000, DraftSkill(acceptance))
    cell = Cell(table, (back,) * int(match["backs"] or 1), n_tokens=_N_TOKENS, n_text=128)
    return Measured(name, cell, {way: row["speedup"] for way, row in rows.items()})


def _way(name: str) -> Way | None:
    match = _WAY.fullmatch(name)
    if match is None:
        return None
    if match[1]:
        return Way("adaptive")
    return Way("sync" if match[2] == "sync" else "fixed", int(match[3]))


def _acceptance(rows: dict[Way, dict[str, Any]]) -> float | None:
    """Of one draft token if those before it are right: what the shares of `sync` speak for.

    Other policies choose which tokens to verify, so their shares say less.
    """
    chances = [
        _chance(row["accepted_share"], way.depth)
        for way, row in rows.items()
        if way.policy == "sync" and row["accepted_share"] is not None
    ]
    return statistics.fmean(chances) if chances else None


def _chance(share: float, depth: int) -> float:
    """The a with (a + a² + … + a^depth) / depth = share, by halving the interval."""
    low, high = _LEAST, _MOST
    for _ in range(20):
        middle = (low + high) / 2
        accepted = sum(middle**i for i in range(1, depth + 1))
        low, high = (middle, high) if accepted < share * depth else (low, middle)
    return (low + high) / 2
