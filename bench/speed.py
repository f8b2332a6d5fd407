"""`python -m bench speed`: tokens/s by policy, depth, draft cost, temperature, backs and round trip.

Real processes, the lead on its cores and the backs on theirs. Every way of a configuration answers the same
prompts in turns with the baseline, a lead without a back; prompts are fresh in each repeat.
"""

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from bench import models, options, peer, report
from bench.cluster import BackPlan, Cluster, Cores
from bench.options import draft_cost, listed
from bench.ways import at_once, baseline, counters, lead_ways, peer_ways
from lead.benchmark.builtin_questions import draw, rounds_of
from lead.benchmark.contest import ContestStage, Way, run_contest, warm_up
from lead.benchmark.measured_answer import Sampling
from lead.benchmark.summary import Row, summarize

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
    "first_ms": ("first token, ms", ".0f"),
    "n_same_text": ("same text", "d"),
    "n_texts": ("of", "d"),
}

_DEPTHS = (1, 2, 3, 4, 5, 6, 8)
_WARM_UP_TOKENS = 16
_QUICK = {
    "draft_costs": ["shipped"],
    "depths": [2, 4],
    "repeats": 1,
    "kinds": ["stories", "knowledge", "lists"],
    "tokens": 48,
}


@dataclass(frozen=True, slots=True)
class Configuration:
    """One cell of the grid; all policies run in each."""

    target: str
    cost: str
    """Of a draft step, relative to a step of the target; or the draft model (`models.draft`)."""
    temperature: float
    n_backs: int
    rtt_ms: float
    n_clients: int = 1

    def __str__(self) -> str:
        parts = [self.target, f"draft {self.cost}", f"T={self.temperature:g}"]
        if self.n_backs != 1:
            parts.append(f"{self.n_backs} backs")
        if self.rtt_ms:
            parts.append(f"{self.rtt_ms:g} ms")
        if self.n_clients != 1:
            parts.append(f"{self.n_clients} clients")
        return ", ".join(parts)


def main(arguments: Sequence[str]) -> None:
    """Measure, print a table and one line of JSON."""
    settings = _parse(arguments)
    cores = options.cores(settings)
    rows, more = _run_grid(settings, cores)
    records = [row.record() for row in rows]
    for configuration in dict.fromkeys(row.configuration for row in rows):
        report.show(configuration, [row for row in records if row["configuration"] == configuration], COLUMNS)
    report.finish("speed", records, settings, cores=asdict(cores), **more)


def configurations(settings: argparse.Namespace) -> Iterator[Configuration]:
    """All cells; without a back, options of the back are not varied."""
    temperatures, backs, rtts = settings.temperatures, settings.backs, settings.rtt_ms
    if settings.full:
        temperatures, backs, rtts = [0.0, 1.0], [0, 1, 2], [0.0, 2.0, 20.0]
    for target, cost, temperature, n_backs, rtt_ms, n_clients in itertools.product(
        settings.targets, settings.draft_costs, temperatures, backs, rtts, settings.clients
    ):
        first = cost == settings.draft_costs[0] and rtt_ms == rtts[0]
        if n_backs or first:
            yield Configuration(target, cost, temperature, n_backs, rtt_ms, n_clients)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench speed", description=__doc__)
    _add_grid_options(parser)
    options.add_workload_options(parser)
    report.add_options(parser)
    parser.add_argument("--ngram", action="store_true", help="keep the lead's own n-gram drafter enabled")
    parser.add_argument(
        "--peer", type=peer.find, metavar="llama-server=PATH", help="also measure this server"
    )
    return report.parse(parser, arguments, _QUICK)


def _add_grid_options(parser: argparse.ArgumentParser) -> None:
    """One option for each axis."""
    parser.add_argument("--targets", type=listed(str), default=["0.4G:f16"], help="size:type, or a GGUF file")
    parser.add_argument(
        "--draft-costs",
        type=listed(draft_cost),
        default=["0.02", "0.1", "0.3"],
        help='cost of a draft step relative to the target\'s, "shipped", or a GGUF file',
    )
    parser.add_argument("--temperatures", type=listed(float), default=[0.0])
    parser.add_argument("--backs", type=listed(int), default=[1], help="numbers of backs")
    parser.add_argument(
        "--rtt-ms", type=listed(float), default=[0.0], help="round-trip times between lead and back"
    )
    parser.add_argument("--clients", type=listed(int), default=[1], help="who ask at the same time")
    parser.add_argument("--policies", type=listed(str), default=["sync", "fixed", "adaptive"])
    parser.add_argument("--depths", type=listed(int), default=list(_DEPTHS), help="depths of sync and fixed")
    parser.add_argument(
        "--full", action="store_true", help="temperatures 0, 1 with 0, 1, 2 backs, 0, 2, 20 ms away"
    )


def _run_grid(settings: argparse.Namespace, cores: Cores) -> tuple[list[Row], dict[str, Any]]:
    rows: list[Row] = []
    planners: dict[str, Any] = {}
    costs: dict[str, float] = {}
    for configuration in configurations(settings):
        target = models.target(configuration.target)
        draft = models.draft(configuration.cost, target, cores.lead, cores.back)
        costs[f"{configuration.target} {configuration.cost}"] = draft.ratio
        _tell(f"{configuration} (measured draft cost {draft.ratio:.3f})")
        cell, planners[str(configuration)] = _run_cell(settings, cores, configuration)
        rows += cell
    return rows, {"draft_costs": costs, "planners": planners}


def _run_cell(
    settings: argparse.Namespace, cores: Cores, configuration: Configuration
) -> tuple[list[Row], dict[str, Any]]:
    """The rows of one cell, and the planner's report at the end."""
    target = models.target(configuration.target)
    draft = models.draft(configuration.cost, target, cores.lead, cores.back)
    n_clients = configuration.n_clients
    # Of answers that go on at the same time all have one length: what is measured is the server.
    fields = {"ignore_eos": True} if n_clients > 1 else {}
    sampling = Sampling(configuration.temperature, settings.tokens, fields=fields)
    backs = [BackPlan(draft.path, f"back-{i}") for i in range(1, configuration.n_backs + 1)]
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(target, cores, n_parallel=n_clients, with_ngram=settings.ngram))
        alone = [baseline(cluster.http, sampling)]
        warm = [baseline(cluster.http, Sampling(configuration.temperature, _WARM_UP_TOKENS))]
        if settings.peer and configuration.rtt_ms == settings.rtt_ms[0] and configuration.n_backs <= 1:
            for where, on in (("lead's cores", cores.lead), ("all cores", f"{cores.lead},{cores.back}")):
                peers = peer.start_peers(
                    stack, settings.peer, target, draft.path, on, depths=settings.depths, n_slots=n_clients
                )
                alone += peer_ways(peers, sampling, f", {where}")
                warm += peer_ways(peers, sampling)
        warm_up(warm, draw(["stories"], 1, settings.seed - 1)[0])
        helped = lead_ways(cluster.http, sampling, settings.policies, settings.depths) if backs else []
        alone, helped = ([at_once(way, n_clients) for way in ways] for ways in (alone, helped))

        @contextmanager
        def with_backs() -> Iterator[list[Way]]:
            with cluster.connected(backs, configuration.rtt_ms):
                yield helped

        stages: list[ContestStage] = [lambda: nullcontext(alone), *([with_backs] if backs else [])]
        rounds = rounds_of(settings.kinds, settings.prompts, settings.repeats, settings.seed)
        runs = run_contest(stages, rounds, settings.seed, _tell)
        planner = counters(cluster.http)
    return summarize(str(configuration), runs, [way.name for way in (*alone, *helped)]), planner


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
