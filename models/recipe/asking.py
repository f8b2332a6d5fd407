"""How users ask for a story: a request names some of the things that it should be about."""

import random

from draws import chance
from language import article
from plots import Plot
from texts import load

_ASKS = load("asking")
ANY: list[str] = _ASKS["any"]
"""Requests for any story at all."""
BEGINNING: list[str] = _ASKS["begin"]
"""What follows a request when only the beginning is wanted."""
_SEVERAL_SENTENCES = "Tell me a story about {x}."


def ask(plot: Plot, rng: random.Random, trouble: float, *, title: bool = False) -> str:
    """A request that names some elements of the plot; the trouble in the share `trouble` of the cases."""
    named = chance(rng, 0.65)
    subject = _hero(plot, rng, named=named)
    with_thing, with_place, with_trouble = chance(rng, 0.5), chance(rng, 0.5), chance(rng, trouble)
    place = rng.choice(
        [f"{plot.place.where} {article(plot.place.word)}", f"{plot.place.where} the {plot.place.word}"]
    )
    if chance(rng, 0.12) and named:
        subject = f"{plot.name} the {plot.kind}"
    thing = article(plot.thing.name)
    if with_trouble:
        subject += " who " + rng.choice(plot.problem.asks)
        if with_place:
            subject += " " + place if chance(rng, 0.5) else f". It should happen {place}"
        if with_thing:
            subject += rng.choice([f", with {thing}", f". Include {thing}"])
    else:
        if with_place:
            subject += " " + place
        if with_thing:
            subject += rng.choice([f" and {thing}", f" with {thing}", f" who has {thing}"])
    template: str = rng.choice(_ASKS["title" if title else "story"])
    if ". " in subject and "{x}." not in template:
        template = _SEVERAL_SENTENCES
    return template.format(x=subject)


def _hero(plot: Plot, rng: random.Random, *, named: bool) -> str:
    hero = article(plot.kind)
    if chance(rng, 0.15):
        hero = article(rng.choice(["little", "brave", "young", "small", "clever"]) + " " + plot.kind)
    return hero + rng.choice([" named ", " called "]) + plot.name if named else hero
