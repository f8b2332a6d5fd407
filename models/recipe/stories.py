"""Short stories from a probabilistic grammar.

A story has seven beats (opening, character, trouble, failed try, helper, solution, ending). The trouble
decides which sentences may follow; names, places and objects run through all of them.
"""

import random
from collections.abc import Callable, Sequence
from typing import Literal

from draws import chance
from language import article, fix
from plots import COLORS, FOODS, Plot
from texts import load

Telling = Literal["whole", "titled", "short", "beginning"]
Say = Callable[[Sequence[str]], str]

_SENTENCES = load("stories")
_WORDS = load("plots")
_PRONOUNS = {
    "m": {"he": "he", "him": "him", "his": "his", "himself": "himself"},
    "f": {"he": "she", "him": "her", "his": "her", "himself": "herself"},
}


def tell(plot: Plot, rng: random.Random, telling: Telling = "whole") -> str:
    """One story in three paragraphs, or only how it begins."""
    slots = _slots(plot, rng)

    def say(templates: Sequence[str]) -> str:
        return _fill(rng.choice(templates), slots, rng)

    short = telling == "short"
    setting = _setting(say, short=short)
    trouble = _trouble(plot, rng, say, short=short)
    solution = _solution(plot, rng, say, slots, short=short)
    if telling == "beginning":
        return f"{setting[0]}\n\n{trouble[0]}"
    body = "\n\n".join(" ".join(part) for part in (setting, trouble, solution))
    return f"{_title(plot, rng)}\n\n{body}" if telling == "titled" else body


def _slots(plot: Plot, rng: random.Random) -> dict[str, str]:
    """What stays the same all through the story."""
    pronouns = _PRONOUNS[plot.gender]
    place = f"{plot.place.where} {plot.place.phrase}"
    traits = rng.sample(_WORDS["traits"], 3)
    return {
        "N": plot.name,
        "kind": plot.kind,
        "place": place,
        "Place": place,
        "H": plot.helper,
        "hk": plot.helper_kind,
        "a_hk": article(plot.helper_kind),
        "o": plot.thing.name,
        "a_o": article(plot.thing.name),
        "tr": traits[0],
        "tr2": traits[1],
        **pronouns,
        "He": pronouns["he"],
        "His": pronouns["his"],
        "flaw": rng.choice(_WORDS["flaws"]),
        "lesson": rng.choice(_WORDS["lessons"]),
    }


def _fill(template: str, slots: dict[str, str], rng: random.Random) -> str:
    weather, color, food = rng.choice(_WORDS["weather"]), rng.choice(COLORS), rng.choice(FOODS)
    return fix(template.format(**slots, w=weather, color=color, food=food))


def _setting(say: Say, *, short: bool) -> list[str]:
    part = [say(_SENTENCES["openings"])]
    if not short:
        part.append(say(_SENTENCES["character"]))
    part.append(say(_SENTENCES["object_intro"]))
    return part


def _trouble(plot: Plot, rng: random.Random, say: Say, *, short: bool) -> list[str]:
    part = [say(plot.problem.hook), say(plot.problem.tries)]
    if not short and chance(rng, 0.7):
        part.append(say(_SENTENCES["feel"]))
    part += [say(_SENTENCES["helper"]), say(plot.problem.help)]
    return part


def _solution(plot: Plot, rng: random.Random, say: Say, slots: dict[str, str], *, short: bool) -> list[str]:
    use = rng.choice(plot.thing.uses)  # chosen before the sentence that leads to it
    part = [say(_SENTENCES["remember"]), _fill(use + ".", slots, rng), say(plot.problem.solve)]
    if not short and chance(rng, 0.5):
        part.append(say(_SENTENCES["joy"]))
    part.append(say(plot.problem.end))
    if chance(rng, 0.7):
        part.append(say(_SENTENCES["closings"]))
    return part


def _title(plot: Plot, rng: random.Random) -> str:
    template: str = rng.choice(_SENTENCES["titles"])
    kind = plot.kind.title()
    return template.format(N=plot.name, o=plot.thing.name.title(), kind=kind, Kind=kind)
