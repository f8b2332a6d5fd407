"""Several ways to answer the same fresh questions, in turns, so that a slower moment affects all of them.

What some ways need, as a lead with a back, is there for a stage of each repeat; the order of the stages
alternates. The order of the ways of a stage is drawn anew for every question.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from lab.measuring.measured_answer import MeasuredAnswer
from lab.measuring.questions import ChatQuestion
from shared.errors import DuoError


@dataclass(frozen=True, slots=True)
class Way:
    """One contestant: a policy of the lead, a drafter, or another server."""

    name: str
    ask: Callable[[ChatQuestion], MeasuredAnswer]


ContestStage = Callable[[], AbstractContextManager[Sequence[Way]]]
"""Within the context these ways can answer."""


@dataclass(frozen=True, slots=True)
class Run:
    """One question answered in one way."""

    way: str
    repeat: int
    question: ChatQuestion
    measurement: MeasuredAnswer


def run_contest(
    stages: Sequence[ContestStage],
    rounds: Sequence[Sequence[ChatQuestion]],
    seed: int,
    tell: Callable[[str], None] = lambda _: None,
    failed: Callable[[DuoError], None] | None = None,
) -> list[Run]:
    """All runs in the order they were made; `rounds`: the questions of each repeat.

    failed: told why a stage could not answer; the others do. Without it, that DuoError is raised.
    """
    rng = random.Random(seed)  # noqa: S311 - a seeded order is wanted
    runs = []
    for repeat, questions in enumerate(rounds):
        for stage in stages if repeat % 2 == 0 else reversed(stages):
            try:
                with stage() as ways:
                    names = ", ".join(way.name for way in ways)
                    tell(f"repeat {repeat + 1} of {len(rounds)}: {names} …")
                    runs += _take_turns(ways, repeat, questions, rng)
            except DuoError as error:
                if failed is None:
                    raise
                failed(error)
    return runs


def warm_up(ways: Sequence[Way], question: ChatQuestion) -> None:
    """Have every way answer once, unmeasured, so that the weights are in memory."""
    for way in ways:
        way.ask(question)


def _take_turns(
    ways: Sequence[Way], repeat: int, questions: Sequence[ChatQuestion], rng: random.Random
) -> list[Run]:
    runs = []
    for question in questions:
        runs += [Run(way.name, repeat, question, way.ask(question)) for way in rng.sample(ways, len(ways))]
    return runs
