"""`python -m bench speed`: tokens/s by policy, depth, draft cost, temperature, backs and round trip.

Real processes, the lead on its cores and the backs on theirs. Every way of a configuration answers the same
prompts in turns with the baseline, a lead without a back; prompts are fresh in each repeat.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from bench import grid, models, options, peer, report, scenarios, table
from bench.client import Sampling
from bench.cluster import BackPlan, Cluster, Cores
from bench.contest import Workload, run_contest, warm_up
from bench.grid import Configuration
from bench.plot import plot_speed
from bench.policy import counters
from bench.prompts import draw
from bench.step_time import step_times
from bench.summary import Row, summarize
from bench.ways import baseline, lead_ways, peer_ways

COLUMNS = {
    "way": ("way", ""),
    "tokens_per_second": ("tokens/s", ".2f"),
    "low": ("least", ".2f"),
    "high": ("most", ".2f"),
    "speedup": ("speed-up", ".2f"),
    "accepted_share": ("accepted", ".0%"),
    "accepted_per_step": ("per step", ".2f"),
    "mean_depth": ("depth", ".2f"),
    "wait_share": ("waiting", ".0%"),
    "bound_share": ("of bound", ".2f"),
    "n_same_text": ("same text", "d"),
    "n_texts": ("of", "d"),
}

_WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17)
_WARM_UP_TOKENS = 16
_QUICK = {
    "draft_costs": ["shipped"],
    "depths": [2, 4],
    "repeats": 1,
    "kinds": ["stories", "knowledge", "lists"],
    "tokens": 48,
}


def main(arguments: Sequence[str]) -> None:
    """Measure, print a table, charts if asked for, and one line of JSON."""
    settings = _parse(arguments)
    cores = options.cores(settings)
    if settings.scenario:
        rows, more = scenarios.run(settings, cores, _tell)
    else:
        rows, more = _run_grid(settings, cores)
    records = [row.record() for row in rows]
    for configuration in dict.fromkeys(row.configuration for row in rows):
        table.show(configuration, [row for row in records if row["configuration"] == configuration], COLUMNS)
    report.finish("speed", records, settings, plot_speed, cores=asdict(cores), **more)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench speed", description=__doc__)
    grid.add_options(parser)
    options.add_workload_options(parser)
    report.add_options(parser)
    parser.add_argument("--scenario", choices=scenarios.NAMES, help="run a special case instead of the grid")
    parser.add_argument(
        "--ngram", action="store_true", help="keep the lead's own n-gram drafter enabled in the grid"
    )
    parser.add_argument(
        "--peer", type=peer.find, metavar="llama-server=PATH", help="also measure this server"
    )
    return report.parse(parser, arguments, _QUICK)


def _run_grid(settings: argparse.Namespace, cores: Cores) -> tuple[list[Row], dict[str, Any]]:
    rows: list[Row] = []
    planners: dict[str, Any] = {}
    costs: dict[str, float] = {}
    steps: dict[str, dict[int, float]] = {}
    for configuration in grid.configurations(settings):
        target = models.target(configuration.target)
        draft = models.draft(configuration.cost, target, cores.lead, cores.back)
        costs[f"{configuration.target} {configuration.cost}"] = draft.ratio
        if configuration.target not in steps:
            steps[configuration.target] = step_times(target, cores.lead, _WIDTHS, 3 if settings.quick else 9)
        _tell(f"{configuration} (measured draft cost {draft.ratio:.3f})")
        cell, planners[str(configuration)] = _run_cell(
            settings, cores, configuration, steps[configuration.target]
        )
        rows += cell
    return rows, {"draft_costs": costs, "step_seconds": steps, "planners": planners}


def _run_cell(
    settings: argparse.Namespace, cores: Cores, configuration: Configuration, steps: dict[int, float]
) -> tuple[list[Row], dict[str, Any]]:
    """The rows of one cell, and the planner's report at the end."""
    target = models.target(configuration.target)
    draft = models.draft(configuration.cost, target, cores.lead, cores.back)
    sampling = Sampling(configuration.temperature, settings.tokens)
    backs = [BackPlan.of_model(draft.path, f"back-{i}") for i in range(1, configuration.n_backs + 1)]
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(target, cores, with_ngram=settings.ngram))
        ways = [baseline(cluster.http, sampling)]
        if backs:
            ways += lead_ways(cluster.http, sampling, settings.policies, settings.depths)
        if settings.peer and configuration.rtt_ms == settings.rtt_ms[0] and configuration.n_backs == 1:
            ways += peer_ways(stack, settings.peer, target, draft.path, sampling, cores, settings.depths)
        warm = draw(settings.kinds[:1], 1, settings.seed - 1)[0]
        short = Sampling(configuration.temperature, _WARM_UP_TOKENS)
        warm_up([baseline(cluster.http, short), *(way for way in ways if "llama-server" in way.name)], warm)
        workload = Workload(settings.kinds, settings.prompts, settings.repeats, settings.seed)
        runs = run_contest(ways, workload, lambda: cluster.connected(backs, configuration.rtt_ms), _tell)
        planner = counters(cluster.http)
    return summarize(str(configuration), runs, [way.name for way in ways], step_times=steps), planner


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
