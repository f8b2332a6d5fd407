"""Which fault happens when: drawn from a seed, without end, the same for the same seed.

Faults come in tracks, one for each part of the system; those of different tracks overlap, those of one track
do not.
"""

import heapq
import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from shared.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Nature:
    """How long a kind of fault lasts, in seconds: drawn between two bounds."""

    track: str
    shortest: float = 0.0
    longest: float = 0.0


KINDS: Mapping[str, Nature] = {
    "engine-killed": Nature("engine"),
    "engine-killed-twice": Nature("engine", 0.3, 2.0),
    "engine-stopped": Nature("engine", 0.3, 6.0),
    "engine-out-of-memory": Nature("engine", 1.0, 3.0),
    "tokenizer-killed": Nature("tokenizer"),
    "tokenizer-stopped": Nature("tokenizer", 0.3, 6.0),
    "back-killed": Nature("back", 0.0, 3.0),
    "back-stopped": Nature("back", 0.5, 6.0),
    "back-flapping": Nature("back"),
    "back-hostile": Nature("hostile", 2.0, 6.0),
    "link-cut": Nature("link"),
    "link-black-hole": Nature("link", 0.5, 8.0),
    "link-300-ms": Nature("link", 2.0, 6.0),
    "link-throttled": Nature("link", 2.0, 6.0),
    "link-pieces": Nature("link", 2.0, 6.0),
    "lead-few-descriptors": Nature("lead", 0.5, 3.0),
    "lead-little-memory": Nature("lead", 0.5, 3.0),
    "lead-replaced": Nature("lead"),
}

_PAUSES = {
    "engine": (5.0, 15.0),
    "tokenizer": (5.0, 15.0),
    "back": (3.0, 10.0),
    "hostile": (5.0, 15.0),
    "link": (1.0, 4.0),
    "lead": (5.0, 15.0),
}
"""Seconds from the end of one fault of a track to the beginning of the next, by track."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`begins`: seconds since the start of the campaign. `choice`, between 0 and 1, chooses back or link."""

    begins: float
    track: str
    number: int
    kind: str
    seconds: float
    choice: float


def chosen_kinds(names: str) -> list[str]:
    """The kinds that `names` lists, by name or by the word that they begin with; raises ConfigError."""
    chosen: list[str] = []
    for name in (part.strip() for part in names.split(",")):
        matching = [kind for kind in KINDS if name in {"all", kind, kind.partition("-")[0]}]
        if not matching and name != "none":
            raise ConfigError(f"--faults {name}: all, none, or some of {', '.join(KINDS)}")
        chosen += [kind for kind in matching if kind not in chosen]
    return chosen


def faults(seed: int, kinds: Collection[str], pace: float = 1.0) -> Iterator[Fault]:
    """All faults of these kinds in the order in which they begin; pauses are divided by `pace`."""
    tracks = sorted({KINDS[kind].track for kind in kinds})
    return heapq.merge(
        *(_track(seed, track, kinds, pace) for track in tracks), key=lambda fault: fault.begins
    )


def _track(seed: int, track: str, kinds: Collection[str], pace: float) -> Iterator[Fault]:
    rng = random.Random(f"{seed} faults {track}")  # noqa: S311 - a seeded choice is wanted
    own = sorted(kind for kind in kinds if KINDS[kind].track == track)
    now, number = 0.0, 0
    while True:
        now += rng.uniform(*_PAUSES[track]) / pace
        kind = rng.choice(own)
        seconds = rng.uniform(KINDS[kind].shortest, KINDS[kind].longest)
        yield Fault(now, track, number, kind, seconds, rng.random())
        now += seconds
        number += 1
