"""How much each constant of speculation matters: speed with it changed, over that with its default."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import pairwise, product
from typing import Any, Literal

from bench.simulation.contest import ADAPTIVE, contest
from bench.simulation.scenarios import BIG_CPU, F16, FLAT, PAIRS, Q8_0, unequal_backs, useless_backs
from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants
from lead.simulation.cell import Cell
from lead.simulation.machine_load import MachineLoad
from lead.simulation.simulated_back import BackSpec
from lead.simulation.text import DraftSkill
from shared.errors import ConfigError

Direction = Literal["halved", "doubled"]
Value = float | tuple[float, ...]


def cells(n_tokens: int) -> dict[str, Cell]:
    """What is simulated, by name: machines and networks, several clients, odd backs, busy machines."""
    found = {}
    for steps, cost, rtt_ms in product((F16, Q8_0, FLAT), (0.02, 0.3), (0.0, 50.0)):
        back = BackSpec(cost * steps.first, rtt_ms / 1000, DraftSkill(0.75))
        found[f"{steps.name}, cost {cost:g}, {rtt_ms:g} ms"] = Cell(steps, (back,), n_tokens=n_tokens)
    for steps, n_clients in ((F16, 2), (FLAT, 4)):
        back = BackSpec(0.05 * steps.first, 0.002, DraftSkill(0.75))
        found[f"{steps.name}, {n_clients} clients"] = Cell(steps, (back,), n_clients, n_tokens // n_clients)
    for steps in (BIG_CPU, FLAT):
        back = BackSpec(0.1 * steps.first, 0.005, DraftSkill(0.75), jitter=0.5)
        load = MachineLoad(drift=0.4, outliers=0.03)
        found[f"{steps.name}, busy machines"] = Cell(steps, (back,), n_tokens=n_tokens, load=load)
    found["4 backs"] = PAIRS[0].cell(0.002, 4, n_tokens // 2)
    useless = useless_backs(F16, n_tokens)
    for name in ("random tokens, sure of them", "1.5 times too slow"):
        found[name] = useless[name]
    unequal = unequal_backs(FLAT, n_tokens)
    for name in ("a quick one and a good one", "a good one and a liar"):
        found[name] = unequal[name][0]
    return found


def sensitivity(n_tokens: int, n_jobs: int = 0) -> list[dict[str, Any]]:
    """A row for each constant: worst cell and mean of the speed with it changed, over that without.

    The first row shows the noise: nothing is changed but the jitter of the steps.
    """
    simulated = cells(n_tokens)
    variants = [*_noise(), *_variants(DEFAULTS)]
    races = list(simulated.values())
    races += [replace(cell, **change) for _, _, change in variants for cell in simulated.values()]
    rates = [result.best([ADAPTIVE])[1] for result in contest(races, (ADAPTIVE,), n_jobs)]
    n = len(simulated)
    usual, rest = rates[:n], rates[n:]
    rows: dict[str, dict[str, Any]] = {}
    for i, (name, direction, _) in enumerate(variants):
        ratios = [rate / base for rate, base in zip(rest[i * n : (i + 1) * n], usual, strict=True)]
        row = rows.setdefault(name, {"constant": name, "default": _shown(getattr(DEFAULTS, name, 0))})
        worst = min(ratios)
        row[direction] = round(worst, 3)
        row[f"{direction}_mean"] = round(math.prod(ratios) ** (1 / n), 4)
        row[f"{direction}_worst_cell"] = list(simulated)[ratios.index(worst)]
    return list(rows.values())


def changed(settings: Sequence[str]) -> SpeculationConstants:
    """The defaults but for `NAME=VALUE` each. Raises ConfigError."""
    values: dict[str, Any] = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in {field.name for field in fields(SpeculationConstants)}:
            raise ConfigError(f"--constant {setting}: there is no constant {name!r}")
        values[name] = _parsed(setting, text, getattr(DEFAULTS, name))
    return replace(DEFAULTS, **values)


def _parsed(setting: str, text: str, default: Value) -> Value:
    try:
        if isinstance(default, tuple):
            return tuple(float(part) for part in text.split(","))
        return type(default)(text)
    except ValueError as error:
        raise ConfigError(f"--constant {setting}: {text!r} is not like {_shown(default)}") from error


def _noise() -> Iterator[tuple[str, Direction, dict[str, Any]]]:
    yield "(other jitter)", "halved", {"jitter_seed": 1}
    yield "(other jitter)", "doubled", {"jitter_seed": 2}


def _variants(constants: SpeculationConstants) -> Iterator[tuple[str, Direction, dict[str, Any]]]:
    """(constant, direction, what is replaced in a cell)."""
    for field in fields(constants):
        default: Any = getattr(constants, field.name)
        halved: Any = _halved(field.name, default)
        doubled: Any = _doubled(field.name, default)
        yield field.name, "halved", {"constants": replace(constants, **{field.name: halved})}
        yield field.name, "doubled", {"constants": replace(constants, **{field.name: doubled})}


def _halved(name: str, value: Value) -> Value:
    """Of a decay, the memory; of edges, every second one."""
    if isinstance(value, tuple):
        return value[::2]
    if name.endswith("_decay"):
        return 1 - 2 * (1 - value)
    return max(1, value // 2) if isinstance(value, int) else value / 2


def _doubled(name: str, value: Value) -> Value:
    """Of edges, one more between each two; a share that would exceed 1 goes half the way to 1."""
    if isinstance(value, tuple):
        between = [(low + high) / 2 for low, high in pairwise(value)]
        return tuple(sorted([*value, *between]))
    if name.endswith("_decay"):
        return 1 - (1 - value) / 2
    if isinstance(value, float) and value < 1 <= 2 * value:
        return (1 + value) / 2
    return 2 * value


def _shown(value: Value) -> str:
    return ", ".join(f"{each:g}" for each in value) if isinstance(value, tuple) else f"{value:g}"
