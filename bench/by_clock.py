"""`python -m bench by_clock`: several backs by the clock, against the simulation.

Lead, backs and the connections between them are the real programs; only the decodes of their models are timed
waits, as long as a table of T(n) says, so that one machine can play several. The simulation is given what was
measured without a back and beside one: the lead's own time in a step, how often the draft model is right, how
fast it drafts, and how far away it is.
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench import options, report
from bench.cluster import BackPlan, Cluster
from bench.options import listed
from bench.simulation.contest import ADAPTIVE, OFF, contest
from bench.simulation.scenarios import RECALLS, WIDE_SLOPE
from bench.ways import Policy, counters, policy_way
from lead.benchmark.builtin_questions import draw, rounds_of
from lead.benchmark.contest import ContestStage, Way, run_contest, warm_up
from lead.benchmark.measured_answer import MeasuredAnswer, Sampling
from lead.benchmark.questions import ChatQuestion
from lead.benchmark.summary import summarize
from lead.simulation.cell import Cell
from lead.simulation.machine import StepTable
from lead.simulation.simulated_back import BackSpec
from lead.simulation.text import DraftSkill
from shared.errors import ConfigError
from shared.models.builtin import builtin_draft, builtin_target

_WAITS = Path(__file__).with_name("timed_waits")
_STEP_MS = {1: 30.0, 8: 32.2, 16: 36.0}
"""A lead whose T(n) is flat, as on a GPU that is limited by its memory."""
COLUMNS = {
    "n_backs": ("backs", "d"),
    "tokens_per_second": ("tokens/s", ".1f"),
    "simulated": ("simulated", ".1f"),
    "ratio": ("ratio", ".3f"),
    "front_ms": ("front, ms CPU a token", ".2f"),
    "kilobytes": ("loopback, KB a token", ".2f"),
}
_QUICK = {"repeats": 1, "tokens": 64, "kinds": ["stories"]}


def main(arguments: Sequence[str]) -> None:
    """Measure, simulate, print a table and one line of JSON."""
    settings = _parse(arguments)
    back = {1: settings.draft_ms, 101: settings.draft_ms * (1 + 100 * WIDE_SLOPE)}
    with _waiting(_STEP_MS, back):
        measured, costs, planner = _measure(settings)
    lead, spec = _lead_as_measured(1 / measured[0]), _back_as_measured(planner)
    rows = [
        {
            "n_backs": n,
            "tokens_per_second": measured[n],
            "simulated": (simulated := _simulate(lead, spec, n)),
            "ratio": measured[n] / simulated,
            "front_ms": 1000 * costs[n].front_seconds / costs[n].n_tokens,
            "kilobytes": costs[n].n_bytes / 1000 / costs[n].n_tokens,
        }
        for n in (0, *settings.backs)
    ]
    what = f"a draft token takes {1000 * spec.step_s:.1f} ms, the way {1000 * spec.rtt_s:.1f} ms; "
    report.show(f"{what}{spec.skill.acceptance:.2f} are right", rows, COLUMNS)
    report.finish("by_clock", rows, settings, planner=planner)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench by_clock", description=__doc__)
    parser.add_argument("--backs", type=listed(int), default=[1, 2, 4], help="numbers of backs")
    parser.add_argument("--draft-ms", type=float, default=3.0, help="a back's decode of one token")
    parser.add_argument("--temperature", type=float, default=0.8)
    options.add_workload_options(parser)
    report.add_options(parser)
    return report.parse(parser, arguments, _QUICK)


@contextmanager
def _waiting(lead: dict[int, float], back: dict[int, float]) -> Iterator[None]:
    """Programs that are started within wait in their decodes."""
    before = dict(os.environ)
    paths = [str(_WAITS), str(_WAITS.parent.parent), before.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ["LEAD_STEP_MS"], os.environ["BACK_STEP_MS"] = json.dumps(lead), json.dumps(back)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@dataclass
class _Cost:
    """Of all answers with so many backs; the bytes of everything on the loopback network, also HTTP."""

    n_tokens: int = 0
    front_seconds: float = 0.0
    n_bytes: int = 0


def _measure(settings: argparse.Namespace) -> tuple[dict[int, float], dict[int, _Cost], dict[str, Any]]:
    """Tokens/s and costs by number of backs, and the planner's report beside one back."""
    sampling = Sampling(settings.temperature, settings.tokens)
    planner: dict[str, Any] = {}
    costs: defaultdict[int, _Cost] = defaultdict(_Cost)
    with Cluster(builtin_target(), options.cores(settings)) as cluster:

        @contextmanager
        def beside(n: int) -> Iterator[list[Way]]:
            plans = [BackPlan(builtin_draft(), f"back-{i}") for i in range(1, n + 1)]
            with cluster.connected(plans) if n else nullcontext():
                policy = Policy("adaptive" if n else "off")
                way = policy_way(cluster.http, sampling, policy, str(n))

                def ask(question: ChatQuestion) -> MeasuredAnswer:
                    front, n_bytes = cluster.front_seconds, _loopback_bytes()
                    answer = way.ask(question)
                    cost = costs[n]
                    cost.n_tokens += answer.n_tokens
                    cost.front_seconds += cluster.front_seconds - front
                    cost.n_bytes += _loopback_bytes() - n_bytes
                    return answer

                warm_up([way], draw(["stories"], 1, settings.seed - 1)[0])
                yield [Way(way.name, ask)]
                if n == settings.backs[0]:
                    planner.update(counters(cluster.http))

        stages: list[ContestStage] = [lambda n=n: beside(n) for n in (0, *settings.backs)]  # type: ignore[misc] # of a lambda with a default
        rounds = rounds_of(settings.kinds, settings.prompts, settings.repeats, settings.seed)
        runs = run_contest(stages, rounds, settings.seed, lambda line: print(line, file=sys.stderr))
    rows = summarize("", runs, [str(n) for n in (0, *settings.backs)])
    return {int(row.way): row.tokens_per_second for row in rows}, costs, planner


def _loopback_bytes() -> int:
    sent: int = psutil.net_io_counters(pernic=True)["lo"].bytes_sent
    return sent


def _lead_as_measured(step_s: float) -> StepTable:
    """step_s: of one token, with the lead's own time."""
    own_s = step_s - _STEP_MS[1] / 1000
    return StepTable("by the clock", tuple((n, own_s + ms / 1000) for n, ms in sorted(_STEP_MS.items())))


def _back_as_measured(planner: dict[str, Any]) -> BackSpec:
    """Raises ConfigError if no back has drafted."""
    source = planner.get("sources", {}).get("back-1", {})
    if not source.get("n_scored") or not source.get("drafted_ms"):
        raise ConfigError("no draft of the first back was compared with the text")
    skill = DraftSkill(source["n_right"] / source["n_scored"], recall=RECALLS["shipped"])
    way_s = max(0.0, source["first_draft_ms"] - source["waited_ms"] - source["drafted_ms"]) / 1000
    return BackSpec(source["drafted_ms"] / 1000, way_s, skill, WIDE_SLOPE, message_s=0.0)


def _simulate(lead: StepTable, back: BackSpec, n: int) -> float:
    way = ADAPTIVE if n else OFF
    cells = [Cell(lead, (back,) * n, seed=seed) for seed in range(3)]
    rates = [result.outcomes[way].tokens_per_second for result in contest(cells, (way,))]
    return sum(rates) / len(rates)
