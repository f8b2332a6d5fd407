"""Greetings, thanks, jokes, questions about itself, and questions that the models cannot answer."""

import random

from draws import by_share, chance
from names import Naming
from plots import FOODS
from skills import COUNTRIES, ITEMS, WORDS, Pair
from texts import load

_TALK = load("smalltalk")
SYSTEM: list[str] = _TALK["system"]
"""System prompts."""


def smalltalk(rng: random.Random, naming: Naming, *, wide: bool) -> Pair:
    """One exchange; `wide` adds questions beyond what the models learn."""
    if wide and chance(rng, 0.5):
        return _outside(rng, naming)
    kinds = (
        (0.2, "greetings"),
        (0.35, "who"),
        (0.47, "abilities"),
        (0.57, "wellbeing"),
        (0.65, "thanks"),
        (0.71, "farewells"),
        (0.82, "unknown"),
        (0.92, "jokes"),
        (1.0, "introduction"),
    )
    kind = by_share(rng, kinds)
    if kind == "introduction":
        return _introduction(rng, naming)
    return _exchange(rng, kind, _TALK["more_greetings"] if wide and kind == "greetings" else [])


def thanks(rng: random.Random) -> Pair:
    return _exchange(rng, "thanks", [])


def farewell(rng: random.Random) -> Pair:
    return _exchange(rng, "farewells", [])


def _exchange(rng: random.Random, kind: str, more: list[str]) -> Pair:
    answers: list[str] = _TALK[kind]["answers"]
    said = rng.choice(_TALK[kind]["said"] + more)
    # One answer needs no draw, and a draw would shift all that follow.
    return said, rng.choice(answers) if len(answers) > 1 else answers[0]


def _introduction(rng: random.Random, naming: Naming) -> Pair:
    name = naming.pick(rng, rng.choice("mf"))
    said = rng.choice(["My name is {n}.", "I am {n}.", "Hi, I'm {n}!", "Hello, my name is {n}."])
    answer = rng.choice(
        ["Nice to meet you, {n}! What would you like to do?", "Hello, {n}! How can I help you?"]
    )
    return said.format(n=name), answer.format(n=name)


def _outside(rng: random.Random, naming: Naming) -> Pair:
    """Something the models have not learned, with an honest answer."""
    template: str = rng.choice(_TALK["outside"]["said"])
    question = template.format(
        c=rng.choice(COUNTRIES),
        f=rng.choice([*FOODS, *ITEMS, "pasta", "pizza", "fish", "a cake"]),
        n=naming.pick(rng, rng.choice("mf")),
        w=rng.choice(WORDS),
        a=rng.randint(2, 99),
        b=rng.randint(2, 99),
        a2=rng.randint(10, 999),
        y=rng.randint(1500, 2030),
    )
    if chance(rng, 0.15):
        question = question.lower().rstrip("?.")
    return question, rng.choice(_TALK["outside"]["answers"])
