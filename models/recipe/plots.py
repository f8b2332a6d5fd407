"""What one story is about: a hero, a place, an object, a trouble and a helper."""

import random
from dataclasses import dataclass

from draws import chance
from names import Naming
from texts import load


@dataclass(frozen=True)
class Place:
    word: str
    """As a request names it: "forest"."""
    where: str
    """The preposition that goes with it."""
    phrase: str
    """As a story says it: "the deep green forest"."""


@dataclass(frozen=True)
class Thing:
    name: str
    uses: tuple[str, ...]
    """Sentences in which it solves the trouble."""


@dataclass(frozen=True)
class Problem:
    """A trouble the hero meets: how a user names it and the sentences it brings."""

    asks: tuple[str, ...]
    """Complete "a story about a fox who ..."."""
    hook: tuple[str, ...]
    tries: tuple[str, ...]
    help: tuple[str, ...]
    solve: tuple[str, ...]
    end: tuple[str, ...]


@dataclass(frozen=True)
class Plot:
    kind: str
    gender: str
    name: str
    place: Place
    thing: Thing
    problem: Problem
    helper_kind: str
    helper: str


_PLOTS = load("plots")
ANIMALS: list[str] = _PLOTS["animals"]
COLORS: list[str] = _PLOTS["colors"]
FOODS: list[str] = _PLOTS["foods"]
THINGS = [Thing(entry["name"], tuple(entry["uses"])) for entry in _PLOTS["objects"]]
_PLACES = [Place(**entry) for entry in _PLOTS["places"]]
_PROBLEMS = [Problem(**{key: tuple(value) for key, value in entry.items()}) for entry in _PLOTS["problems"]]
_KINDS: list[list[str]] = [ANIMALS, _PLOTS["people"], _PLOTS["more_kinds"]]
_LOOKS = [*COLORS, "old", "little", "magic", "broken", "shiny"]


def random_plot(rng: random.Random, naming: Naming) -> Plot:
    """Everything drawn at random; hero and helper differ in kind and name."""
    kind = _random_kind(rng)
    gender = _gender(kind, rng)
    name = naming.pick(rng, gender)
    helper_kind = _random_kind(rng)
    while helper_kind == kind:
        helper_kind = _random_kind(rng)
    helper_gender = _gender(helper_kind, rng)
    helper = naming.pick(rng, helper_gender)
    while helper == name:
        helper = naming.pick(rng, helper_gender)
    place, thing, problem = rng.choice(_PLACES), _random_thing(rng), rng.choice(_PROBLEMS)
    return Plot(kind, gender, name, place, thing, problem, helper_kind, helper)


def _random_kind(rng: random.Random) -> str:
    return rng.choice(rng.choices(_KINDS, [5, 3, 3])[0])


def _gender(kind: str, rng: random.Random) -> str:
    if kind in _PLOTS["male"]:
        return "m"
    return "f" if kind in _PLOTS["female"] else rng.choice("mf")


def _random_thing(rng: random.Random) -> Thing:
    if chance(rng, 0.7):
        return rng.choice(THINGS)
    name = rng.choice(_PLOTS["more_objects"])
    if chance(rng, 0.4):
        name = rng.choice(_LOOKS) + " " + name.removeprefix("magic ")
    one, other = rng.sample(_PLOTS["generic_uses"], 2)
    return Thing(name, (one.replace("{o}", name), other.replace("{o}", name)))
