"""`python -m bench simulate --fleet`: many leads and many backs, with the lead's and the back's own rules.

    python -m bench simulate --fleet                          1,000 leads, 4,000 backs: who drafts for whom
    python -m bench simulate --fleet --leads 10 --backs 20    another size
    python -m bench simulate --fleet --exact                  the coarse simulation against the exact one
    python -m bench simulate --fleet --limits                 what breaks first when a fleet grows
    python -m bench simulate --fleet --validate leads.json    what `bench leads --calibrate` has measured

First the exact planner simulates one lead with more and more sequences and drafting power. The fleet is then
simulated in steps of a quarter of a second, in which each lead is as fast as the exact planner was.

Columns: tok/s of all answers (what clients ask for) and of one; draft tokens per second and back that a text
has; how much of their time backs compute; waste: the share of what they draft that no text has; waited: for
more than a second for a slot; cut: answers that a lead's failure ended. "moved": every ten seconds.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench import options, report, table
from bench.simulation import fleet_limits, fleet_validation
from bench.simulation.coarse_fleet import CoarseFleet, FleetLoad, Pooling
from bench.simulation.exact_fleet import ExactFleet
from bench.simulation.fleet_spec import FleetSpec
from bench.simulation.lead_speeds import LeadSpeeds
from bench.simulation.scenarios import F16
from lead.simulation.simulated_back import BackSpec
from lead.simulation.step_table import StepTable

Rows = list[dict[str, Any]]

_QUICK = {"leads": 40, "backs": 80, "seconds": 60.0}
_WARM_UP_S = 60.0
_EXACT_SECONDS = 30.0
_BUSY = 0.85
"""Of the tokens that the fleet could generate: how much is asked for where it is about waiting."""
_SIZES = (16, 64, 256, 1024, 4096)
_GROUPS = (1, 4, 16, 64, 256, 1024)
_COLUMNS = {
    "fleet": {
        "backs_are": ("backs", ""),
        "tokens_per_second": ("tok/s", ",.0f"),
        "answer_speed": ("tok/s of an answer", ".1f"),
        "per_back": ("used tok/s per back", ".2f"),
        "busy": ("busy", ".0%"),
        "waste": ("waste", ".0%"),
        "waited": ("waited", ".1%"),
        "cut": ("cut", ".2%"),
        "moves_per_second": ("moves/s", ".1f"),
        "cpu_s": ("CPU s", ".0f"),
    },
    "validation": {
        "backs": ("backs", ""),
        "measured": ("measured", ".1f"),
        "predicted": ("predicted", ".1f"),
        "ratio": ("predicted/measured", ".2f"),
    },
    "exact": {
        "backs": ("backs", ""),
        "leads_per_back": ("leads of each", ""),
        "exact": ("exact tokens/s", ".1f"),
        "coarse": ("coarse", ".1f"),
        "ratio": ("coarse/exact", ".2f"),
    },
    "connected_backs": {
        "backs": ("backs of one lead", ","),
        "found_s": ("until the good one is asked, s", ",.0f"),
        "step_us": ("CPU per step of a sequence, µs", ",.0f"),
    },
    "moves": {
        "leads": ("leads", ","),
        "moves": ("moves", ","),
        "plan_s": ("planned in, s", ".3f"),
    },
    "routing": {
        "leads": ("leads", ","),
        "routers": ("routers", ""),
        "poll_s": ("load asked every, s", ".0f"),
        "asked_per_second": ("questions/s", ",.0f"),
        "waited": ("waited > 1 s", ".1%"),
        "wait_99_s": ("99 % waited less than, s", ".1f"),
    },
    "groups": {
        "leads_in_group": ("leads in a group", ","),
        "answer_speed": ("tok/s of an answer", ".1f"),
        "waited": ("waited > 1 s", ".1%"),
        "wait_99_s": ("99 % waited less than, s", ".1f"),
    },
}
_TITLES = {
    "fleet": "{leads:,} leads of {slots} slots, {backs:,} backs, {per_second:,.1f} requests/s",
    "validation": "Two leads with a client each: tokens/s of both",
    "exact": "Eight leads with 0 to 4 sequences: the coarse simulation against the exact one",
    "connected_backs": "One lead with many backs, of which one is good",
    "moves": "Planning the moves of four backs for each lead",
    "routing": "Waiting for a slot, with {backs_each:g} backs for each lead and 85 % of what it can do",
    "groups": "{leads:,} leads, {backs:,} backs in closed groups, each back with four leads, at 85 %",
}


def main(arguments: Sequence[str]) -> None:
    """Simulate, print tables and one line of JSON. Raises ConfigError."""
    settings = _parse(arguments)
    flat: Rows = []
    for name, rows in _parts(settings):
        table.show(_TITLES[name].format(**vars(settings)), rows, _COLUMNS[name])
        flat += [{"part": name, **row} for row in rows]
    report.finish("simulate", flat, settings)


def _parts(settings: argparse.Namespace) -> Iterator[tuple[str, Rows]]:
    """(name, rows) of what was asked for, each as soon as it is done."""
    if settings.validate:
        yield "validation", fleet_validation.validate(settings.validate)
        return
    spec, load = _spec(settings), _load(settings)
    speeds = LeadSpeeds.simulate(spec, settings.jobs)
    if settings.exact:
        yield "exact", _exact(spec, speeds)
    elif settings.limits:
        yield "connected_backs", fleet_limits.connected_backs(_SIZES)
        yield "moves", fleet_limits.moving((100, 1_000, 10_000))
        busy = replace(load, per_second=_BUSY * _capacity(spec, speeds) / load.n_text)
        yield "routing", fleet_limits.routing(spec, busy, speeds, (100, 1_000, 10_000), settings.seconds)
        sizes = [size for size in _GROUPS if size <= settings.leads]
        yield "groups", fleet_limits.groups(spec, busy, speeds, sizes, settings.seconds)
    else:
        yield "fleet", _fleet(spec, load, speeds, settings.seconds)


def _capacity(spec: FleetSpec, speeds: LeadSpeeds) -> float:
    """Tokens per second of the fleet if all slots are in use."""
    fleet = CoarseFleet(spec, FleetLoad(0.0), speeds, Pooling())
    return float(fleet.steady(np.full(spec.n_leads, spec.n_slots)).sum())


def _fleet(spec: FleetSpec, load: FleetLoad, speeds: LeadSpeeds, seconds: float) -> Rows:
    """Ways to divide the backs among the leads."""
    ways = {"none": (0, 1, Pooling()), "one lead each": (spec.n_backs, 1, Pooling())}
    ways["one lead each, moved"] = spec.n_backs, 1, Pooling(10.0)
    for n in (2, 4, 8):
        ways[f"{n} leads each"] = spec.n_backs, n, Pooling()
    ways["where sequences are (bound)"] = spec.n_backs, 1, Pooling(ideal=True)
    return [
        {
            "backs_are": name,
            **_outcome(replace(spec, n_backs=m, leads_per_back=k), load, speeds, pooling, seconds),
        }
        for name, (m, k, pooling) in ways.items()
    ]


def _outcome(
    spec: FleetSpec, load: FleetLoad, speeds: LeadSpeeds, pooling: Pooling, seconds: float
) -> dict[str, Any]:
    began = time.process_time()
    fleet = CoarseFleet(spec, load, speeds, pooling)
    fleet.run(_WARM_UP_S)
    outcome, events = fleet.run(seconds), fleet.events
    return {
        "tokens_per_second": outcome.tokens_per_second,
        "answer_speed": outcome.answer_speed,
        "per_back": outcome.n_accepted / outcome.seconds / spec.n_backs if spec.n_backs else None,
        "busy": outcome.busy(spec.n_backs) if spec.n_backs else None,
        "waste": outcome.waste if spec.n_backs else None,
        "waited": float(np.mean(np.array(events.waits) > 1)),
        "cut": events.n_cut / max(1, events.n_requests),
        "moves_per_second": events.n_moves / (seconds + _WARM_UP_S),
        "cpu_s": time.process_time() - began,
    }


def _exact(spec: FleetSpec, speeds: LeadSpeeds) -> Rows:
    """Eight leads, unequally busy."""
    n_running = np.minimum(np.array([0, 1, 0, 2, 4, 1, 0, 3]), spec.n_slots)
    rows = []
    for n_backs, n_each in ((4, 1), (4, 2), (8, 1), (8, 2), (8, 4), (16, 4)):
        small = replace(spec, n_leads=8, n_backs=n_backs, leads_per_back=n_each)
        exact = ExactFleet(small, n_running.tolist()).run(_EXACT_SECONDS / 3, _EXACT_SECONDS)
        coarse = CoarseFleet(small, FleetLoad(0.0), speeds, Pooling()).steady(n_running).sum()
        rows.append(
            {
                "backs": n_backs,
                "leads_per_back": n_each,
                "exact": exact.tokens_per_second,
                "coarse": float(coarse),
                "ratio": float(coarse) / exact.tokens_per_second,
            }
        )
    return rows


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench simulate --fleet",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    report.add_options(parser)
    add = parser.add_argument
    add("--fleet", action="store_true", required=True)
    add("--exact", action="store_true", help="compare the coarse simulation with the exact one")
    add("--limits", action="store_true", help="what grows with a fleet, and how fast")
    add("--validate", type=Path, metavar="FILE", help="predict what bench leads --calibrate --json measured")
    add("--leads", type=int, default=1000)
    add("--backs", type=int, default=4000)
    add("--slots", type=int, default=4, help="of each lead")
    add("--step-ms", type=Path, metavar="FILE", help="T(n) of a lead: JSON, n to milliseconds")
    add("--draft-ms", type=float, default=20.0, help="a step of the backs' draft model")
    add("--acceptance", type=options.listed(float), default=[0.8, 0.6], help="of the leads' texts, in turn")
    add("--rtt-ms", type=float, default=1.0)
    add("--requests", type=float, default=0.06, dest="each", help="per second and lead")
    add("--text", type=float, default=200.0, dest="n_text", help="tokens of an answer on average")
    add("--poll", type=float, default=1.0, help="seconds after which the router asks a lead for its load")
    add("--routers", type=int, default=1)
    add("--mtbf-hours", type=float, default=24.0, help="between failures of one lead or back")
    add("--seconds", type=float, default=180.0, help="of simulated time")
    add("--jobs", type=int, default=0, help="processes; 0: one per core")
    settings = report.parse(parser, arguments, _QUICK)
    settings.per_second = settings.each * settings.leads
    settings.backs_each = settings.backs / settings.leads
    return settings


def _spec(settings: argparse.Namespace) -> FleetSpec:
    steps = StepTable.read(settings.step_ms) if settings.step_ms else F16
    back = BackSpec(settings.draft_ms / 1000, settings.rtt_ms / 1000)
    acceptances = tuple(settings.acceptance)
    return FleetSpec(steps, back, settings.leads, settings.backs, 1, settings.slots, acceptances)


def _load(settings: argparse.Namespace) -> FleetLoad:
    return FleetLoad(
        settings.per_second,
        settings.n_text,
        settings.poll,
        settings.routers,
        3600 * settings.mtbf_hours,
    )
