"""Special cases of `bench speed`: harmful backs, no backs, unequal backs, side branches."""

import argparse
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bench import models
from bench.client import Sampling, ask
from bench.cluster import BackPlan, Cluster, Cores
from bench.contest import Run, Way, Workload, run_contest, warm_up
from bench.policy import ADAPTIVE, choose
from bench.prompts import Prompt, draw
from bench.step_time import step_times
from bench.summary import Row, summarize
from bench.ways import baseline, policy_way

NAMES = ("hostile", "sources", "two-backs", "branches")

_SLOW_FACTOR = 10
_WARM_UP_TOKENS = 16

Tell = Callable[[str], None]
Connect = Callable[[Cluster], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class BackSet:
    """A named set of backs: one column of a comparison."""

    name: str
    connect: Connect


def run(settings: argparse.Namespace, cores: Cores, tell: Tell) -> tuple[list[Row], dict[str, Any]]:
    """The rows of the chosen scenario, and further fields of the report. Raises ConfigError."""
    scenarios = {"hostile": _hostile, "sources": _sources, "two-backs": _two_backs, "branches": _branches}
    scenario = scenarios[settings.scenario]
    return scenario(settings, cores, tell), {"scenario": settings.scenario}


def _hostile(settings: argparse.Namespace, cores: Cores, tell: Tell) -> list[Row]:
    """The adaptive lead with backs that propose nonsense, are stopped, or far too slow."""
    target = models.target(settings.targets[0])
    good = models.draft("shipped" if settings.quick else "0.1", target, cores.lead, cores.back)
    honest = BackPlan.of_model(good.path, "stopped")
    step = step_times(target, cores.lead, [1], 5)[1]
    slow = BackPlan.bad("slow", _SLOW_FACTOR * step * 1000)
    back_sets = [
        BackSet("no back", lambda cluster: cluster.connected([])),
        BackSet("random back", lambda cluster: cluster.connected([BackPlan.bad("random")])),
        BackSet("lying back", lambda cluster: cluster.connected([BackPlan.bad("liar")])),
        BackSet("stopped back", lambda cluster: _stopped(cluster, honest)),
        BackSet(f"{_SLOW_FACTOR}x too slow back", lambda cluster: cluster.connected([slow])),
    ]
    return _compare_back_sets("hostile", settings, cores, back_sets, tell)


def _two_backs(settings: argparse.Namespace, cores: Cores, tell: Tell) -> list[Row]:
    """Two unequal backs on one sequence against each of them alone."""
    target = models.target(settings.targets[0])
    costs = ["shipped", "0.02"] if settings.quick else ["0.02", "0.1"]
    plans = [
        BackPlan.of_model(models.draft(cost, target, cores.lead, cores.back).path, f"draft-{cost}")
        for cost in costs
    ]
    random_one = BackPlan.bad("random")
    back_sets = [
        BackSet(f"draft {costs[0]}", lambda cluster: cluster.connected(plans[:1])),
        BackSet(f"draft {costs[1]}", lambda cluster: cluster.connected(plans[1:])),
        BackSet(f"drafts {costs[0]} and {costs[1]}", lambda cluster: cluster.connected(plans)),
        BackSet(
            f"draft {costs[0]} and a random back", lambda cluster: cluster.connected([plans[0], random_one])
        ),
    ]
    return _compare_back_sets("two backs", settings, cores, back_sets, tell)


def _branches(settings: argparse.Namespace, cores: Cores, tell: Tell) -> list[Row]:
    """The same back with and without side branches."""
    target = models.target(settings.targets[0])
    back_sets = []
    for cost in ["shipped"] if settings.quick else ["0.02", "0.1"]:
        path = models.draft(cost, target, cores.lead, cores.back).path
        for n in (0, 3):
            plan = BackPlan.of_model(path, f"draft-{cost}-{n}", "--n-branches", str(n))
            back_sets.append(
                BackSet(f"draft {cost}, {n} branches", lambda cluster, plan=plan: cluster.connected([plan]))  # type: ignore[misc]
            )
    return _compare_back_sets("branches", settings, cores, back_sets, tell)


def _sources(settings: argparse.Namespace, cores: Cores, tell: Tell) -> list[Row]:
    """The lead's own n-gram source without any back, by kind of prompt."""
    sampling = Sampling(settings.temperatures[0], settings.tokens)
    rows: list[Row] = []
    with Cluster(models.target(settings.targets[0]), cores, with_ngram=True) as cluster:
        ways = [baseline(cluster.http, sampling), _alone(cluster, sampling)]
        warm_up(ways, _warm_prompt(settings))
        for kind in settings.kinds:
            tell(f"prompts: {kind}")
            workload = Workload([kind], settings.prompts, settings.repeats, settings.seed)
            rows += summarize(kind, run_contest(ways, workload, lambda: cluster.connected([]), tell))
    return rows


def _compare_back_sets(
    name: str, settings: argparse.Namespace, cores: Cores, back_sets: Sequence[BackSet], tell: Tell
) -> list[Row]:
    """The adaptive policy with each set of backs, compared with a lead that never has a back.

    The second lead is idle while the first one answers, so the two can take turns prompt by prompt: if the
    host becomes slower, it does so for both.
    """
    sampling = Sampling(settings.temperatures[0], settings.tokens)
    target = models.target(settings.targets[0])
    runs: dict[str, list[Run]] = {back_set.name: [] for back_set in back_sets}
    with Cluster(target, cores, with_ngram=settings.ngram) as cluster, Cluster(target, cores) as lonely:
        ways = [
            replace(baseline(lonely.http, sampling), with_backs=True),
            policy_way(cluster.http, sampling, ADAPTIVE),
        ]
        warm_up(ways, _warm_prompt(settings))
        for repeat in range(settings.repeats):
            # Each set of backs gets the same prompts: they follow from the seed and the repeat's number.
            workload = Workload(settings.kinds, settings.prompts, 1, settings.seed * 1000 + repeat)
            for back_set in back_sets if repeat % 2 == 0 else reversed(back_sets):
                tell(f"repeat {repeat + 1} of {settings.repeats}: {back_set.name}")
                made = run_contest(ways, workload, partial(back_set.connect, cluster), tell)
                runs[back_set.name] += [Run(run.way, repeat, run.prompt, run.measurement) for run in made]
    return [row for back_set, all_runs in runs.items() for row in summarize(f"{name}: {back_set}", all_runs)]


def _alone(cluster: Cluster, sampling: Sampling) -> Way:
    return policy_way(cluster.http, sampling, ADAPTIVE, "adaptive, no back", with_backs=False)


@contextmanager
def _stopped(cluster: Cluster, plan: BackPlan) -> Iterator[None]:
    """A back that has drafted for one answer and is then stopped, its connection open."""
    with cluster.connected([plan]) as backs:
        choose(cluster.http, ADAPTIVE)
        ask(cluster.http, draw(["stories"], 1, 0)[0], Sampling(0.0, _WARM_UP_TOKENS))
        for back in backs:
            back.signal(signal.SIGSTOP)
        yield


def _warm_prompt(settings: argparse.Namespace) -> Prompt:
    return draw(settings.kinds[:1], 1, settings.seed - 1)[0]
