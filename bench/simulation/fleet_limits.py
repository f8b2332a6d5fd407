"""What breaks first when a fleet grows: the parts whose cost or delay grows with it, by the code that runs.

The choice of backs in a lead, the moves of a pool and routing are timed or simulated at growing sizes.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bench.simulation.coarse_fleet import CoarseFleet, FleetLoad, Pooling
from bench.simulation.fleet_spec import FleetSpec
from bench.simulation.lead_speeds import LeadSpeeds
from fleet.moves import LeadNeed, plan_moves
from lead.backs.assignment import Assignment
from lead.engine.speculation.drafts import DraftTree

Rows = list[dict[str, Any]]

_STEP_S = 0.05
_N_SEQUENCES = 4
_MOST_STEPS = 100_000
_SLOTS = 4096
_GOOD = "good"


def connected_backs(counts: Sequence[int]) -> Rows:
    """One lead, many backs, of which one drafts well and the others nothing: how long until it is asked?"""
    return [_connected(n) for n in counts]


def _connected(n_backs: int) -> dict[str, Any]:
    assignment = Assignment(0.0)
    for number in range(n_backs - 1):
        assignment.join(f"useless-{number}", _SLOTS, 0.0)
    assignment.join(_GOOD, _SLOTS, 0.0)
    sequences = [f"s{number}" for number in range(_N_SEQUENCES)]
    for sequence in sequences:
        assignment.open(sequence, 0.0)
    began, found, step = time.process_time(), None, 0
    while found is None and step < _MOST_STEPS:
        step += 1
        _step(assignment, sequences, step)
        if any(assignment.backs(each)[:1] == [_GOOD] for each in sequences):
            found = step * _STEP_S
    seconds = time.process_time() - began
    return {"backs": n_backs, "found_s": found, "step_us": 1e6 * seconds / (step * _N_SEQUENCES)}


def _step(assignment: Assignment, sequences: Sequence[str], step: int) -> None:
    for sequence in sequences:
        if _GOOD in assignment.backs(sequence):
            assignment.on_draft(_GOOD, sequence, DraftTree(step, [step]), range(step))
        assignment.on_step(sequence, step, [step], step * _STEP_S)


def moving(counts: Sequence[int]) -> Rows:
    """Planning moves for so many leads with four backs each, half of which are in the wrong place."""
    rows = []
    for n_leads in counts:
        n_running = np.random.default_rng(0).poisson(1.5, n_leads)
        needs = [LeadNeed(str(lead), float(n)) for lead, n in enumerate(n_running)]
        placed: dict[str, str | None] = {str(back): str(back // 8) for back in range(4 * n_leads)}
        began = time.process_time()
        moves = plan_moves(needs, placed, 2.0)
        rows.append({"leads": n_leads, "moves": len(moves), "plan_s": time.process_time() - began})
    return rows


def routing(
    spec: FleetSpec, load: FleetLoad, speeds: LeadSpeeds, sizes: Sequence[int], seconds: float
) -> Rows:
    """How long requests wait, by the number of leads, of routers, and how old what they know of loads is."""
    rows = []
    for n_leads in sizes:
        many = replace(spec, n_leads=n_leads, n_backs=n_leads * spec.n_backs // spec.n_leads)
        per_second = load.per_second * n_leads / spec.n_leads
        for n_routers, poll_s in ((1, 1.0), (1, 10.0), (16, 1.0), (16, 10.0)):
            asked = replace(load, per_second=per_second, n_routers=n_routers, poll_s=poll_s)
            fleet = CoarseFleet(many, asked, speeds, Pooling())
            fleet.run(seconds)
            rows.append(
                {
                    "leads": n_leads,
                    "routers": n_routers,
                    "poll_s": poll_s,
                    "asked_per_second": n_routers * n_leads / poll_s,
                    "waited": sum(wait > 1 for wait in fleet.events.waits) / max(1, len(fleet.events.waits)),
                    "wait_99_s": fleet.events.wait(0.99),
                }
            )
    return rows


def groups(
    spec: FleetSpec, load: FleetLoad, speeds: LeadSpeeds, sizes: Sequence[int], seconds: float
) -> Rows:
    """Fleets in closed groups of so many leads, each with its share of requests and backs, and a router."""
    rows = []
    for size in sizes:
        n_groups = max(1, spec.n_leads // size)
        group = replace(
            spec, n_leads=size, n_backs=size * spec.n_backs // spec.n_leads, leads_per_back=min(4, size)
        )
        share = replace(load, per_second=load.per_second * size / spec.n_leads)
        fleets = [
            CoarseFleet(group, share, speeds, Pooling(), seed=seed) for seed in range(min(n_groups, 64))
        ]
        outcomes = [fleet.run(seconds) for fleet in fleets]
        waits = [wait for fleet in fleets for wait in fleet.events.waits]
        rows.append(
            {
                "leads_in_group": size,
                "answer_speed": sum(each.n_tokens for each in outcomes)
                / max(1e-9, sum(each.sequence_seconds for each in outcomes)),
                "waited": sum(wait > 1 for wait in waits) / max(1, len(waits)),
                "wait_99_s": float(np.quantile(waits, 0.99)) if waits else 0.0,
            }
        )
    return rows
