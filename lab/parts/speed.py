"""`python -m bench speed`: tokens/s by policy, depth, draft cost, temperature, backs and clients.

Real processes, with the lead and the backs on separate cores. Every way of a configuration answers the same
prompts, alternately with the baseline, a lead without a back. Each repeat has new prompts.
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from lab.measuring.builtin_questions import KINDS, draw, rounds_of
from lab.measuring.contest import ContestStage, Way, run_contest, warm_up
from lab.measuring.measured_answer import Sampling
from lab.measuring.questions import PUBLIC_SETS
from lab.measuring.summary import Row, summarize
from lab.parts import models, peer, report
from lab.parts.processes import split_cores, start_back
from lab.parts.ways import at_once, baseline, counters, lead_ways, lead_within, peer_ways
from shared import cpus

COLUMNS = {
    "way": ("way", ""),
    "tokens_per_second": ("tokens/s", ".2f"),
    "low": ("least", ".2f"),
    "high": ("most", ".2f"),
    "speedup": ("speed-up", ".2f"),
    "accepted_share": ("accepted", ".0%"),
    "accepted_per_step": ("accepted tokens per step", ".2f"),
    "mean_depth": ("depth", ".2f"),
    "wait_share": ("waiting", ".0%"),
    "first_ms": ("first token, ms", ".0f"),
    "n_same_text": ("same text", "d"),
    "n_texts": ("of", "d"),
}

Item = TypeVar("Item")
_N_CTX = 2048
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
class Cores:
    """The cores of the lead and of the backs, in the syntax of `--cpus`."""

    lead: str
    back: str


@dataclass(frozen=True, slots=True)
class Configuration:
    """A cell of the benchmark's grid: models, temperature, and numbers of backs and clients. Every policy is
    measured in each cell.
    """

    target: str
    cost: str
    """The cost of a draft step, relative to a step of the target; or the draft model (`models.draft`)."""
    temperature: float
    n_backs: int
    n_clients: int = 1

    def __str__(self) -> str:
        parts = [self.target, f"draft {self.cost}", f"T={self.temperature:g}"]
        if self.n_backs != 1:
            parts.append(f"{self.n_backs} backs")
        if self.n_clients != 1:
            parts.append(f"{self.n_clients} clients")
        return ", ".join(parts)


def main(arguments: Sequence[str]) -> None:
    """Measure, print a table and one line of JSON."""
    settings = _parse(arguments)
    lead, back = split_cores(sorted(cpus.usable()))
    cores = Cores(settings.lead_cpus or lead, settings.back_cpus or back)
    rows, more = _run_grid(settings, cores)
    records = [asdict(row) for row in rows]
    for configuration in dict.fromkeys(row.configuration for row in rows):
        report.show(configuration, [row for row in records if row["configuration"] == configuration], COLUMNS)
    report.finish("speed", records, settings, cores=asdict(cores), **more)


def configurations(settings: argparse.Namespace) -> Iterator[Configuration]:
    """Yield all cells of the grid; without a back, the draft model is not varied."""
    for target, cost, temperature, n_backs, n_clients in itertools.product(
        settings.targets, settings.draft_costs, settings.temperatures, settings.backs, settings.clients
    ):
        if n_backs or cost == settings.draft_costs[0]:
            yield Configuration(target, cost, temperature, n_backs, n_clients)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench speed", description=__doc__)
    _add_grid_options(parser)
    _add_workload_options(parser)
    report.add_options(parser)
    parser.add_argument("--ngram", action="store_true", help="keep the lead's own n-gram drafter enabled")
    parser.add_argument(
        "--peer", type=peer.find, metavar="llama-server=PATH", help="also measure this server"
    )
    return report.parse(parser, arguments, _QUICK)


def _add_grid_options(parser: argparse.ArgumentParser) -> None:
    """Add an option for each axis of the grid."""
    parser.add_argument("--targets", type=listed(str), default=["0.4G:f16"], help="size:type, or a GGUF file")
    parser.add_argument(
        "--draft-costs",
        type=listed(draft_cost),
        default=["0.02", "0.1", "0.3"],
        help='cost of a draft step relative to the target\'s, "shipped", or a GGUF file',
    )
    parser.add_argument("--temperatures", type=listed(float), default=[0.0])
    parser.add_argument("--backs", type=listed(int), default=[1], help="numbers of backs")
    parser.add_argument("--clients", type=listed(int), default=[1], help="number of parallel clients")
    parser.add_argument("--policies", type=listed(str), default=["sync", "fixed", "adaptive"])
    parser.add_argument("--depths", type=listed(int), default=list(_DEPTHS), help="depths for sync and fixed")


def _add_workload_options(parser: argparse.ArgumentParser) -> None:
    """Add options for prompts, repeats and cores."""
    parser.add_argument("--kinds", type=listed(kind), default=list(KINDS), help="kinds of prompts")
    parser.add_argument("--prompts", type=int, default=1, help="prompts of each kind in a repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=96, help="maximum number of tokens in an answer")
    parser.add_argument("--seed", type=int, default=1, help="seed of the prompts and their order")
    parser.add_argument("--lead-cpus", help="cores for the lead (default: all but the last)")
    parser.add_argument("--back-cpus", help="cores for the backs (default: the last)")


def listed(item: Callable[[str], Item]) -> Callable[[str], list[Item]]:
    """Return an argparse type for items separated by commas."""

    def parse(text: str) -> list[Item]:
        return [item(part.strip()) for part in text.split(",") if part.strip()]

    parse.__name__ = f"list of {getattr(item, '__name__', 'items')}"
    return parse


def kind(text: str) -> str:
    """Parse a kind of prompt, or a source of prompts (`rounds_of`)."""
    if text not in {*KINDS, *PUBLIC_SETS} and not Path(text).is_file():
        known = ", ".join([*KINDS, *PUBLIC_SETS])
        raise argparse.ArgumentTypeError(f"{text!r} is neither one of {known}, nor a file")
    return text


def draft_cost(text: str) -> str:
    """Parse a draft model as `models.draft` takes it."""
    if text != models.SHIPPED and not Path(text).is_file() and not 0 < float(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is neither shipped, nor a file, nor between 0 and 1")
    return text


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
    """Return the rows of one cell, and the planner's report at the end."""
    target = models.target(configuration.target)
    draft = models.draft(configuration.cost, target, cores.lead, cores.back)
    n_clients = configuration.n_clients
    # Concurrent answers all have the same length, so that only the speed of the server counts.
    fields = {"ignore_eos": True} if n_clients > 1 else {}
    sampling = Sampling(configuration.temperature, settings.tokens, fields=fields)
    with ExitStack() as stack:
        url, http = lead_within(stack, *_lead_arguments(target, cores, n_clients, with_ngram=settings.ngram))
        alone = [baseline(http, sampling)]
        warm = [baseline(http, Sampling(configuration.temperature, _WARM_UP_TOKENS))]
        if settings.peer and configuration.n_backs <= 1:
            for where, on in (("lead's cores", cores.lead), ("all cores", f"{cores.lead},{cores.back}")):
                peers = peer.start_peers(
                    stack, settings.peer, target, draft.path, on, depths=settings.depths, n_slots=n_clients
                )
                alone += peer_ways(peers, sampling, f", {where}")
                warm += peer_ways(peers, sampling)
        warm_up(warm, draw(["stories"], 1, settings.seed - 1)[0])
        n_backs = configuration.n_backs
        helped = lead_ways(http, sampling, settings.policies, settings.depths) if n_backs else []
        alone, helped = ([at_once(way, n_clients) for way in ways] for ways in (alone, helped))

        @contextmanager
        def with_backs() -> Iterator[list[Way]]:
            with ExitStack() as connected:
                for i in range(1, n_backs + 1):
                    own = ("--model", str(draft.path), "--name", f"back-{i}", "--cpus", cores.back)
                    connected.enter_context(start_back(url, *own, "--threads", "1"))
                yield helped

        stages: list[ContestStage] = [lambda: nullcontext(alone), *([with_backs] if n_backs else [])]
        rounds = rounds_of(settings.kinds, settings.prompts, settings.repeats, settings.seed)
        runs = run_contest(stages, rounds, settings.seed, _tell)
        planner = counters(http)
    return summarize(str(configuration), runs, [way.name for way in (*alone, *helped)]), planner


def _lead_arguments(target: Path, cores: Cores, n_clients: int, *, with_ngram: bool) -> list[str]:
    return [
        *("--model", str(target), "--cpus", cores.lead, "--threads", str(len(cpus.parse_cpus(cores.lead)))),
        *("--print", "none", "--suffix-memory", "0"),  # the same prompts are sent again and again
        *("--parallel", str(n_clients), "--ctx-size", str(_N_CTX * n_clients)),
        *([] if with_ngram else ["--no-ngram"]),
    ]


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
