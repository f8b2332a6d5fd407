"""Several ways to answer the same fresh prompts, in turns, so that a slower moment affects all of them.

In each repeat one half runs without any back connected, the other half with them; which half is first
alternates. The order of the ways is drawn anew for every prompt.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from bench.client import Measurement
from bench.prompts import Prompt, draw


@dataclass(frozen=True, slots=True)
class Way:
    """One contestant: a policy of the lead, or another server."""

    name: str
    ask: Callable[[Prompt], Measurement]
    with_backs: bool


@dataclass(frozen=True, slots=True)
class Run:
    """One prompt answered in one way."""

    way: str
    repeat: int
    prompt: Prompt
    measurement: Measurement


@dataclass(frozen=True, slots=True)
class Workload:
    """The prompts that every way answers."""

    kinds: Sequence[str]
    n_each: int
    n_repeats: int
    seed: int


def run_contest(
    ways: Sequence[Way],
    workload: Workload,
    connect: Callable[[], AbstractContextManager[object]],
    tell: Callable[[str], None] = lambda _: None,
) -> list[Run]:
    """All runs in the order they were made. Within the context of `connect` the backs are connected."""
    rng = random.Random(workload.seed)  # noqa: S311 - a seeded order is wanted
    runs = []
    for repeat in range(workload.n_repeats):
        prompts = draw(workload.kinds, workload.n_each, hash_seed(workload.seed, repeat))
        halves = [False, True] if repeat % 2 == 0 else [True, False]
        for with_backs in halves:
            chosen = [way for way in ways if way.with_backs == with_backs]
            if not chosen:
                continue
            tell(f"repeat {repeat + 1} of {workload.n_repeats}, {'with' if with_backs else 'without'} backs")
            if with_backs:
                with connect():
                    runs += _take_turns(chosen, repeat, prompts, rng)
            else:
                runs += _take_turns(chosen, repeat, prompts, rng)
    return runs


def warm_up(ways: Sequence[Way], prompt: Prompt) -> None:
    """Have every way answer once, unmeasured, so that the weights are in memory."""
    for way in ways:
        way.ask(prompt)


def hash_seed(seed: int, repeat: int) -> int:
    """A seed for the prompts of one repeat."""
    return seed * 1_000_003 + repeat


def _take_turns(ways: Sequence[Way], repeat: int, prompts: Sequence[Prompt], rng: random.Random) -> list[Run]:
    runs = []
    for prompt in prompts:
        runs += [Run(way.name, repeat, prompt, way.ask(prompt)) for way in rng.sample(ways, len(ways))]
    return runs
