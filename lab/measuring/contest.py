"""Measures several ways of answering the same questions. They alternate, so slow moments affect all of them.

A stage sets up the lead, or other programs, for some of the ways. Each repeat runs all stages, in alternating
order. The order of the ways within a stage is drawn for every question.
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
    """A way of answering that is compared with others: a policy of the lead, a drafter, or another server."""

    name: str
    ask: Callable[[ChatQuestion], MeasuredAnswer]


ContestStage = Callable[[], AbstractContextManager[Sequence[Way]]]
"""Returns a context that yields ways, which can answer within the context."""


@dataclass(frozen=True, slots=True)
class Run:
    """The measurement of one question answered in one way."""

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
    """Run all stages and return all runs in order. rounds: the questions of each repeat.

    failed: called with the reason when a stage cannot answer; the other stages continue. Without it, the
    DuoError is raised.
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
    """Let every way answer once, unmeasured, to load the weights into memory."""
    for way in ways:
        way.ask(question)


def _take_turns(
    ways: Sequence[Way], repeat: int, questions: Sequence[ChatQuestion], rng: random.Random
) -> list[Run]:
    runs = []
    for question in questions:
        runs += [Run(way.name, repeat, question, way.ask(question)) for way in rng.sample(ways, len(ways))]
    return runs
