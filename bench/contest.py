"""Several ways to answer the same fresh prompts, taking turns, so that a slower moment meets all of them.

In each repeat one half runs without any back connected, the other half with them; which half is first
alternates. The order of the ways is drawn anew for every prompt.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from bench.asking import Reading
from bench.prompts import Prompt, draw


@dataclass(frozen=True, slots=True)
class Way:
    """One contestant: a policy of the lead, or another server."""

    name: str
    ask: Callable[[Prompt], Reading]
    with_backs: bool


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one prompt in one way."""

    way: str
    repeat: int
    prompt: Prompt
    reading: Reading


@dataclass(frozen=True, slots=True)
class Course:
    """What all ways have to do."""

    kinds: Sequence[str]
    n_each: int
    n_repeats: int
    seed: int


def hold(
    ways: Sequence[Way],
    course: Course,
    connect: Callable[[], AbstractContextManager[object]],
    tell: Callable[[str], None] = lambda _: None,
) -> list[Run]:
    """All runs, in the order in which they were made. `connect` holds the backs while its context lasts."""
    rng = random.Random(course.seed)  # noqa: S311 - a seeded order is wanted
    runs = []
    for repeat in range(course.n_repeats):
        prompts = draw(course.kinds, course.n_each, hash_seed(course.seed, repeat))
        halves = [False, True] if repeat % 2 == 0 else [True, False]
        for with_backs in halves:
            chosen = [way for way in ways if way.with_backs == with_backs]
            if not chosen:
                continue
            tell(f"repeat {repeat + 1} of {course.n_repeats}, {'with' if with_backs else 'without'} backs")
            if with_backs:
                with connect():
                    runs += _take_turns(chosen, repeat, prompts, rng)
            else:
                runs += _take_turns(chosen, repeat, prompts, rng)
    return runs


def warm_up(ways: Sequence[Way], prompt: Prompt) -> None:
    """Every way once, unmeasured: pages in weights."""
    for way in ways:
        way.ask(prompt)


def hash_seed(seed: int, repeat: int) -> int:
    """Prompts of their own for each repeat."""
    return seed * 1_000_003 + repeat


def _take_turns(ways: Sequence[Way], repeat: int, prompts: Sequence[Prompt], rng: random.Random) -> list[Run]:
    runs = []
    for prompt in prompts:
        runs += [Run(way.name, repeat, prompt, way.ask(prompt)) for way in rng.sample(ways, len(ways))]
    return runs
