"""`python -m bench simulate`: what drafts are worth on hardware that is not here.

The lead's scheduler and speculation are real; steps, backs and the network only take simulated time: T(n) of
`lab.simulation.hardware`. The simulation therefore tests the lead's decisions for given times, not the times.

    python -m bench simulate
    python -m bench simulate --constant explore_every=64    with another value of a constant of speculation
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

from lab.parts import report
from lab.planning.pinned_process import parallel_map
from lab.simulation.cell import Cell, simulate
from lab.simulation.hardware import PRINCIPAL, Hardware
from lab.simulation.places import LARGE_PLACES, SMALL_PLACES, DraftPlace, back, inline
from lab.simulation.text import DraftSkill
from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants
from shared import cpus
from shared.errors import ConfigError

_N_TOKENS, _N_QUICK = 1024, 384
_STOPPED = 30.0
"""The number of steps after which a back stops sending. By then the lead knows the back's gain."""


def main(arguments: Sequence[str]) -> None:
    """Simulate, print tables, and one JSON object in the last line. Raises ConfigError for an unknown
    constant.
    """
    options = _parser().parse_args(arguments)
    n_tokens = options.n_tokens or (_N_QUICK if options.quick else _N_TOKENS)
    devices = PRINCIPAL[::3] if options.quick else PRINCIPAL
    constants, rate, flat = changed(options.constant), partial(simulate, policy="adaptive"), []
    with parallel_map(options.jobs or len(cpus.usable())) as spread:
        for title, cases in _PARTS.items():
            rows = []
            for hardware in devices:
                target = Cell(hardware.steps, n_tokens=n_tokens, constants=constants)
                for case, cells in cases(hardware, target):
                    alone, *rates = spread(rate, [target, *cells.values()])
                    gains = [round(rate / alone, 3) for rate in rates]
                    rows.append({"device": hardware.title, **case, **dict(zip(cells, gains, strict=True))})
            columns = {key: (key, "" if key == "device" else "g") for row in rows for key in row}
            report.show(title, rows, columns)
            flat += [{"part": title, **row} for row in rows]
    report.finish("simulate", flat, options, tokens_per_run=n_tokens)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench simulate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    report.add_options(parser)
    parser.add_argument(
        "--constant",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another value of a constant of speculation (SpeculationConstants); may be repeated",
    )
    parser.add_argument("--n-tokens", type=int, default=0, help="tokens per run; more give less noise")
    parser.add_argument("--jobs", type=int, default=0, help="number of processes; 0: one per core")
    return parser


def changed(settings: Sequence[str]) -> SpeculationConstants:
    """Return the default constants with the changes given as `NAME=VALUE`. Raises ConfigError."""
    values: dict[str, Any] = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in {field.name for field in fields(SpeculationConstants)}:
            raise ConfigError(f"--constant {setting}: there is no constant {name!r}")
        default = getattr(DEFAULTS, name)
        try:
            values[name] = (
                tuple(map(float, text.split(","))) if isinstance(default, tuple) else type(default)(text)
            )
        except ValueError as error:
            raise ConfigError(f"--constant {setting}: write a value like {default}") from error
    return replace(DEFAULTS, **values)


# The rows of a device: what they are, and cells by column


Cases = Iterator[tuple[Mapping[str, float], Mapping[str, Cell]]]


def _places(places: Sequence[DraftPlace]) -> Callable[[Hardware, Cell], Cases]:
    def cases(hardware: Hardware, target: Cell) -> Cases:
        for right in places[0].acceptances:
            cells = {each.name: each.cell(hardware, right, target.n_tokens) for each in places}
            fitting = {name: cell for name, cell in cells.items() if cell}
            yield (
                {"right": right},
                {name: replace(cell, constants=target.constants) for name, cell in fitting.items()},
            )

    return cases


def _without_gain(hardware: Hardware, target: Cell) -> Cases:
    good, first = back(0.004, 0.7), hardware.steps.seconds(1)
    token_s = hardware.draft_1b_s or 0.002
    yield (
        {},
        {
            "useless back": replace(target, backs=(replace(good, skill=DraftSkill(0.7, honest=False)),)),
            "back, .3": replace(target, backs=(back(0.004, 0.3),)),
            "stopped back": replace(target, backs=(replace(good, silent_from=_STOPPED * first),)),
            "engine, .3": replace(target, inline=inline(token_s, 0.3)),
            "engine, .5": replace(target, inline=inline(token_s, 0.5)),
        },
    )


_PARTS: Mapping[str, Callable[[Hardware, Cell], Cases]] = {
    "Speed-up by where a small draft model runs": _places(SMALL_PLACES),
    "Speed-up by where an 8B draft model runs": _places(LARGE_PLACES),
    "Drafts that do not pay: speed relative to the lead alone": _without_gain,
}
