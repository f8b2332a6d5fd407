"""`python -m bench simulate`: the gain from backs, on machines and networks that are not available here.

The lead's scheduler and speculation are real; steps, backs and the network only take simulated time. The
simulation therefore tests the lead's decisions for given times, not the times: use measured ones.

    python -m bench simulate                                       gains, and the policy against depths
    python -m bench simulate --step-ms steps.json --draft-ms 12    your own pair
    python -m bench simulate --constant explore_every=64           the same with another value
    python -m bench simulate --devices                             GPUs by their published T(n)

steps.json maps n to milliseconds, as `step_ms` of `GET /v1/speculation` does.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from lab.parts import report
from lab.parts.simulation.contest import (
    ADAPTIVE,
    BOUND,
    FIXED,
    OFF,
    SYNC,
    Result,
    Way,
    contest,
)
from lab.parts.simulation.ground import synchronous, two_models, without_gain
from lab.parts.simulation.scenarios import BACKS, PAIRS, RTTS_MS, Pair, policy_cells, read_table
from lab.simulation.cell import Cell
from lab.simulation.hardware import PRINCIPAL, Hardware
from lab.simulation.places import LARGE, LARGE_PLACES, SMALL_PLACES, DraftPlace
from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants
from shared.errors import ConfigError

_N_TOKENS = 1024
_N_QUICK = 384
_QUICK_DEPTHS = (0, 1, 2, 4, 6, 8)
Rows = list[dict[str, Any]]


def main(arguments: Sequence[str]) -> None:
    """Simulate, print tables, and one JSON object in the last line. Raises ConfigError for an
    invalid table.
    """
    options = _parser().parse_args(arguments)
    n_tokens = options.n_tokens or (_N_QUICK if options.quick else _N_TOKENS)
    run = Run(n_tokens, options.jobs, changed(options.constant))
    flat: Rows = []
    for name, rows in _devices(run) if options.devices else _parts(options, run):
        _show(name, rows)
        flat += [{"part": name, **row} for row in rows]
    report.finish("simulate", flat, options, tokens_per_run=n_tokens)


@dataclass(frozen=True, slots=True)
class Run:
    """The options of a simulation: constants, and `n_jobs` processes; 0: one per core."""

    n_tokens: int
    n_jobs: int
    constants: SpeculationConstants

    def contest(self, cells: Sequence[Cell], ways: Sequence[Way]) -> list[Result]:
        """Call `contest` with these constants for all cells."""
        return contest([replace(cell, constants=self.constants) for cell in cells], ways, self.n_jobs)


def _parts(options: argparse.Namespace, run: Run) -> Iterator[tuple[str, Rows]]:
    """Yield (name, rows) of the requested tables, each as soon as it is done."""
    quick = options.quick
    rtts = RTTS_MS if options.rtt_ms is None else (options.rtt_ms,)
    if options.step_ms:
        pair = Pair("yours", read_table(options.step_ms), options.draft_ms / 1000, options.acceptance)
        yield "gains", _gains((pair,), rtts, BACKS[:2], run)
    else:
        yield "gains", _gains(PAIRS, rtts, BACKS[:2] if quick else BACKS, run)
        yield "policies", _policies(quick, run)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench simulate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    report.add_options(parser)
    parser.add_argument("--step-ms", type=Path, metavar="FILE", help="your T(n): JSON, n to milliseconds")
    parser.add_argument("--draft-ms", type=_positive, default=10.0, help="a step of your draft model")
    parser.add_argument(
        "--acceptance", type=_chance, default=0.75, help="how often your draft model's next token is right"
    )
    parser.add_argument(
        "--rtt-ms", type=_positive, default=None, help="one round trip time; default: several"
    )
    parser.add_argument(
        "--constant",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another value of a constant of speculation (SpeculationConstants); may be repeated",
    )
    parser.add_argument("--n-tokens", type=int, default=0, help="tokens per run; more: less luck")
    parser.add_argument("--devices", action="store_true", help="instead: GPUs of which T(n) is published")
    parser.add_argument("--jobs", type=int, default=0, help="processes; 0: one per core")
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
            raise ConfigError(f"--constant {setting}: {text!r} is not like {default}") from error
    return replace(DEFAULTS, **values)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a time")
    return value


def _chance(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


# The parts


def _gains(pairs: Sequence[Pair], rtts_ms: Sequence[float], n_backs: Sequence[int], run: Run) -> Rows:
    """Return the gains from backs for a pair of models."""
    axes = [(pair, rtt, n) for pair in pairs for rtt in rtts_ms for n in n_backs]
    cells = [pair.cell(rtt / 1000, n, run.n_tokens) for pair, rtt, n in axes]
    results = run.contest(cells, (OFF, ADAPTIVE, BOUND[0]))
    return [
        {
            "pair": pair.name,
            "acceptance": pair.acceptance,
            "draft_ms": round(1000 * pair.draft_s, 3),
            "rtt_ms": rtt,
            "backs": n,
            "alone_tokens_per_second": round(result.best([OFF])[1], 2),
            "tokens_per_second": round(result.best([ADAPTIVE])[1], 2),
            "speedup": round(result.speedup(ADAPTIVE), 3),
            "bound": round(result.speedup(BOUND[0]), 3),
        }
        for (pair, rtt, n), result in zip(axes, results, strict=True)
    ]


def _policies(quick: bool, run: Run) -> Rows:
    """Compare the adaptive policy with the best depth of each other policy, found by trying all depths."""
    ways = (OFF, *SYNC, *FIXED, ADAPTIVE, *BOUND)
    if quick:
        ways = tuple(way for way in ways if way.depth in _QUICK_DEPTHS)
    return [_comparison(result) for result in run.contest(policy_cells(run.n_tokens, quick=quick), ways)]


def _comparison(result: Result) -> dict[str, Any]:
    cell, back = result.cell, result.cell.backs[0]
    sync, fixed = result.best(SYNC), result.best(FIXED)
    best = max(sync[1], fixed[1], result.best([OFF])[1])
    adaptive, bound = result.best([ADAPTIVE])[1], result.best(BOUND)[1]
    outcome = result.outcomes[ADAPTIVE]
    return {
        "steps": cell.steps.name,
        "clients": cell.n_clients,
        "acceptance": back.skill.acceptance,
        "cost": round(back.step_s / cell.steps.seconds(1), 4),
        "rtt_ms": round(1000 * back.rtt_s, 3),
        "sync": round(result.speedup(*SYNC), 3),
        "sync_depth": sync[0].depth,
        "fixed": round(result.speedup(*FIXED), 3),
        "fixed_depth": fixed[0].depth,
        "adaptive": round(result.speedup(ADAPTIVE), 3),
        "bound": round(result.speedup(*BOUND), 3),
        "to_best": round(adaptive / best, 3),
        "of_bound": round(adaptive / bound, 3),
        "mean_depth": round(outcome.mean_depth, 2),
        "waiting": round(outcome.wait_share, 3),
    }


def _devices(run: Run) -> Iterator[tuple[str, Rows]]:
    """Yield speed-ups over no drafts: by the draft model's place, without gain, and with two draft models."""
    yield "small_drafts", _places(SMALL_PLACES, run)
    yield "large_drafts", _places(LARGE_PLACES, run)
    yield "without_gain", [without_gain_of(hardware, run) for hardware in PRINCIPAL]
    yield "two_models", [_two_models(hardware, run) for hardware in PRINCIPAL]


def _places(places: Sequence[DraftPlace], run: Run) -> Rows:
    return [
        placed(hardware, acceptance, places, run)
        for hardware, acceptance in product(PRINCIPAL, places[0].acceptances)
    ]


def placed(hardware: Hardware, acceptance: float, places: Sequence[DraftPlace], run: Run) -> dict[str, Any]:
    """Return a row: speed-up over no drafts for each place of the draft model.

    `sync`: in the engine, at the best fixed depth.
    """
    cells = {each.name: each.cell(hardware, acceptance, run.n_tokens) for each in places}
    rates = _to_alone(hardware, {name: cell for name, cell in cells.items() if cell}, run)
    token_s = places[0].engine_token(hardware)
    return {
        "device": hardware.title,
        "right": acceptance,
        "sync": None if token_s is None else round(synchronous(hardware, token_s, acceptance), 3),
        **{name: rates.get(name) for name in cells},
    }


def without_gain_of(hardware: Hardware, run: Run) -> dict[str, Any]:
    """Return a row: speed-up over no drafts for kinds of drafts that do not pay."""
    return {
        "device": hardware.title,
        **_to_alone(hardware, without_gain(hardware, run.n_tokens), run),
    }


def _two_models(hardware: Hardware, run: Run) -> dict[str, Any]:
    row: dict[str, Any] = {"device": hardware.title}
    for acceptance in LARGE:
        cells = two_models(hardware, acceptance, run.n_tokens)
        both, one, other = (each.best([ADAPTIVE])[1] for each in run.contest(cells, (ADAPTIVE,)))
        row[f"{acceptance:g} right"] = round(both / max(one, other), 3)
    return row


def _to_alone(hardware: Hardware, cells: Mapping[str, Cell], run: Run) -> dict[str, float]:
    alone = Cell(hardware.steps, n_tokens=run.n_tokens)
    rates = [each.best([ADAPTIVE])[1] for each in run.contest([alone, *cells.values()], (ADAPTIVE,))]
    return {name: round(rate / rates[0], 3) for name, rate in zip(cells, rates[1:], strict=True)}


_TITLES = {
    "small_drafts": "Speed-up by where a small draft model runs (sync: in the engine, best fixed depth)",
    "large_drafts": "The same of an 8B draft model",
    "without_gain": "Drafts that do not pay: speed over that of the lead alone",
    "two_models": "Backs with two draft models that are as often right: speed over that of the better one",
    "gains": "What would I gain? Speed-up by round trip time (each back has a draft model of its own)",
    "policies": "Speed-up over no drafting: policies at their best depth, one back",
}


_SHORT = {
    "acceptance": "accept",
    "sync_depth": "at",
    "fixed_depth": "at ",
    "rtt_ms": "rtt ms",
    "alone_tokens_per_second": "alone tok/s",
}


def _show(name: str, rows: Rows) -> None:
    if name == "gains":
        rows = _by_round_trip(rows)
    columns = {
        key: (_SHORT.get(key, key.replace("_", " ")), "" if isinstance(value, str) else "g")
        for key, value in rows[0].items()
    }
    report.show(_TITLES[name], rows, columns)


def _by_round_trip(rows: Rows) -> Rows:
    """Return a row per pair and number of backs, with the speed-up for each round-trip time."""
    wide: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        keep = ("pair", "acceptance", "draft_ms", "alone_tokens_per_second", "backs")
        line = wide.setdefault((row["pair"], row["backs"]), {key: row[key] for key in keep})
        line[f"{row['rtt_ms']:g} ms"] = row["speedup"]
    for row in rows:
        wide[row["pair"], row["backs"]]["bound"] = row["bound"]
    return list(wide.values())
