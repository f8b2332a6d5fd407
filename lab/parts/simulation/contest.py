"""Simulates the same cell under every policy and depth, and under an upper bound of the gain from drafts."""

import functools
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

from lab.simulation.cell import Cell, CellOutcome, simulate
from lab.simulation.text import DraftSkill, Text
from lead.engine.commands import PolicyName
from lead.engine.drafters.draft_source import LookupDrafter

DEPTHS = (1, 2, 3, 4, 5, 6, 8, 12)


class Way(NamedTuple):
    """A policy and its depth. `instant`: the upper bound, with the first back's draft model taking
    no time.
    """

    policy: PolicyName
    depth: int = 0
    instant: bool = False


OFF = Way("off")
ADAPTIVE = Way("adaptive")
BOUND = (Way("adaptive", instant=True), *(Way("fixed", depth, instant=True) for depth in DEPTHS))
SYNC = tuple(Way("sync", depth) for depth in DEPTHS)
FIXED = tuple(Way("fixed", depth) for depth in DEPTHS)


@dataclass(frozen=True, slots=True)
class Result:
    """The simulated outcome of a cell, by way."""

    cell: Cell
    outcomes: dict[Way, CellOutcome]

    def best(self, ways: Iterable[Way]) -> tuple[Way, float]:
        """Return the fastest of these ways, and its tokens per second."""
        rates = {way: self.outcomes[way].tokens_per_second for way in ways if way in self.outcomes}
        way = max(rates, key=lambda each: rates[each])
        return way, rates[way]

    def speedup(self, *ways: Way) -> float:
        """Return the speed of the best of these ways over the speed without drafts."""
        return self.best(ways)[1] / self.outcomes[OFF].tokens_per_second


class InstantDrafter(LookupDrafter):
    """A drafter whose drafts are always complete, for an upper bound of the gain from drafts."""

    def __init__(self, skill: DraftSkill, text: Text) -> None:
        self._text = text
        self._skill = skill

    def draft(self, tokens: Sequence[int], max_tokens: int) -> tuple[list[int], list[float]]:
        positions = range(len(tokens), min(len(tokens) + max_tokens, self._text.n_tokens))
        guesses = []
        right = True
        for position in positions:
            guess = (self._text.guesses if right else self._text.astray)(self._skill, position)[0]
            right = right and guess.token == self._text.token(position)
            guesses.append(guess)
        return [guess.token for guess in guesses], [guess.confidence for guess in guesses]


def contest(cells: Sequence[Cell], ways: Sequence[Way], n_jobs: int = 0) -> list[Result]:
    """Simulate every cell in every way, in `n_jobs` processes; 0: one per core."""
    races = [(_of(cell, way), way) for cell in cells for way in ways]
    with ProcessPoolExecutor(n_jobs or len(os.sched_getaffinity(0))) as pool:
        outcomes = list(pool.map(_run, races, chunksize=4))
    n = len(ways)
    return [
        Result(cell, dict(zip(ways, outcomes[i * n : (i + 1) * n], strict=True)))
        for i, cell in enumerate(cells)
    ]


def _of(cell: Cell, way: Way) -> Cell:
    if way.instant:
        return replace(cell, backs=(), lookup=functools.partial(InstantDrafter, cell.backs[0].skill))
    return replace(cell, backs=()) if way == OFF else cell


def _run(race: tuple[Cell, Way]) -> CellOutcome:
    cell, way = race
    return simulate(cell, way.policy, way.depth)
