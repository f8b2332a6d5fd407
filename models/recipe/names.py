"""Names of heroes and helpers: listed ones, and invented ones that the models have to copy."""

import random
from dataclasses import dataclass

from draws import chance
from texts import load

_NAMES = load("names")
GIRLS: list[str] = _NAMES["girls"]
BOYS: list[str] = _NAMES["boys"]
_MORE_GIRLS: list[str] = _NAMES["more_girls"]
_MORE_BOYS: list[str] = _NAMES["more_boys"]

_BEGINNINGS = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z"]
_BEGINNINGS += ["br", "dr", "fl", "gr", "kr", "st", "tr", "sh", "ch", "qu"]
_MIDDLES = ["l", "r", "n", "m", "ll", "nn", "rr", "nd", "lt", "v", "z", "k", "b", "d"]
_ENDS = ["", "", "n", "x", "k", "s", "l", "ra", "by", "ny", "to", "mo", "p"]
_TOO_SHORT = 2


@dataclass(frozen=True)
class Naming:
    """Where names come from."""

    invented: float = 0.3
    """Share of invented names."""
    more: bool = False
    """Whether to use the longer lists as well."""

    def pick(self, rng: random.Random, gender: str) -> str:
        """A name for gender "f" or "m"."""
        if chance(rng, self.invented):
            return invent(rng)
        if self.more and chance(rng, 0.6):
            return rng.choice(_MORE_GIRLS if gender == "f" else _MORE_BOYS)
        return rng.choice(GIRLS if gender == "f" else BOYS)


def invent(rng: random.Random) -> str:
    """A name that nobody has, so that the models learn to copy names they have never seen."""
    name = rng.choice(_BEGINNINGS) + rng.choice("aeiou")
    if chance(rng, 0.6):
        name += rng.choice(_MIDDLES) + rng.choice("aeiou")
    name += rng.choice(_ENDS)
    return name.capitalize() + ("bo" if len(name) <= _TOO_SHORT else "")
