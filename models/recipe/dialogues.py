"""Whole dialogues: stories, knowledge, skills and small talk, with follow-up turns.

The generator is seeded and repeats exactly: the order of the draws in these files is part of the recipe.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from asking import ANY, BEGINNING, ask
from draws import by_share, chance
from knowledge import TOPICS, vary
from names import Naming
from plots import Plot, random_plot
from skills import Pair, weighted_skills
from smalltalk import SYSTEM, farewell, smalltalk, thanks
from stories import Telling, tell

Dialogue = dict[str, Any]
"""{"category": ..., "messages": [{"role": ..., "content": ...}, ...]}"""

_N_WRITTEN = 6  # a topic's first questions are the ones written by hand: they are asked more often


@dataclass(frozen=True)
class Options:
    """What the stages of the training differ in."""

    mix: tuple[float, ...] = (0.37, 0.26, 0.31, 0.06)
    """Shares of dialogues: story, knowledge, skill, small talk. These make stories most of the tokens."""
    max_number: int = 20
    """Largest number in sums."""
    hard: int = 1
    """How much more often sums, spelling and capitals come."""
    wide: bool = False
    """More and more unusual names, and questions beyond the domain."""
    trouble: float = 0.45
    """How often a story request names the trouble."""
    begin: float = 0.0
    """How often only the beginning of a story is wanted."""

    @property
    def naming(self) -> Naming:
        return Naming(invented=0.5, more=True) if self.wide else Naming()


class Writer:
    """Writes dialogues, drawing everything from one stream of random numbers."""

    def __init__(self, rng: random.Random, options: Options | None = None) -> None:
        self._rng = rng
        self._options = options or Options()
        self.skills = weighted_skills(self._options.max_number, self._options.hard)

    def dialogue(self) -> Dialogue:
        story, knowledge, skill, _ = self._options.mix
        bounds = (story, story + knowledge, story + knowledge + skill, 1.0)
        category = by_share(
            self._rng, tuple(zip(bounds, ("story", "knowledge", "skill", "smalltalk"), strict=True))
        )
        plot: Plot | None = None
        if category == "story":
            first, plot = self.story()
        else:
            first = {"knowledge": self.knowledge, "skill": self.skill, "smalltalk": self.smalltalk}[
                category
            ]()
        turns = [first]
        if chance(self._rng, 0.35 if category in {"skill", "smalltalk"} else 0.17):
            turns += self._further_turns(plot, after_smalltalk=category == "smalltalk")
            category = f"multi-{category}"
        messages = []
        if chance(self._rng, 0.5):
            messages.append({"role": "system", "content": self._rng.choice(SYSTEM)})
        return {"category": category, "messages": messages + as_messages(*turns)}

    def story(self) -> tuple[Pair, Plot]:
        """A request for a story, the story, and its plot for later turns."""
        rng, options = self._rng, self._options
        plot = random_plot(rng, options.naming)
        if options.begin and chance(rng, options.begin):
            request = ask(plot, rng, options.trouble) + rng.choice(BEGINNING)
            return (request, tell(plot, rng, "beginning")), plot
        kind = by_share(rng, ((0.06, "any"), (0.14, "titled"), (0.22, "short"), (1.0, "whole")))
        telling: Telling = "whole"
        if kind == "any":
            request = rng.choice(ANY)
        elif kind == "titled":
            request, telling = ask(plot, rng, options.trouble, title=True), "titled"
        elif kind == "short":
            request = ask(plot, rng, options.trouble).replace("a short story", "a story")
            request = request.replace("a story", "a very short story", 1)
            telling = "short" if "very short" in request else "whole"
        else:
            request = ask(plot, rng, options.trouble)
        return (request, tell(plot, rng, telling)), plot

    def knowledge(self) -> Pair:
        topic = self._rng.choice(TOPICS)
        asked = topic.questions[:_N_WRITTEN] if chance(self._rng, 0.5) else topic.questions
        return vary(self._rng.choice(asked), self._rng), topic.answer

    def skill(self) -> Pair:
        weights = [weight for _, weight in self.skills]
        chosen, _ = self._rng.choices(self.skills, weights)[0]
        return chosen(self._rng)

    def smalltalk(self) -> Pair:
        return smalltalk(self._rng, self._options.naming, wide=self._options.wide)

    def follow_up(self, plot: Plot) -> Pair:
        """A turn about the story just told."""
        kinds: tuple[tuple[float, Callable[[Plot], Pair]], ...] = (
            (0.25, self._hero),
            (0.4, self._helper),
            (0.55, self._place),
            (0.75, self._another_story),
            (0.9, lambda _plot: self.story()[0]),
            (1.0, lambda _plot: thanks(self._rng)),
        )
        return by_share(self._rng, kinds)(plot)

    def _further_turns(self, plot: Plot | None, *, after_smalltalk: bool) -> list[Pair]:
        rng = self._rng
        turns: list[Pair] = []
        for _ in range(rng.choice([1, 1, 2, 3])):
            kind = by_share(
                rng, ((0.6, "follow"), (0.72, "knowledge"), (0.87, "skill"), (0.93, "story"), (1.0, "thanks"))
            )
            if kind == "follow" and plot is not None:
                turns.append(self.follow_up(plot))
            elif kind in {"follow", "knowledge"}:
                turns.append(self.knowledge())
            elif kind == "skill":
                turns.append(self.skill())
            elif kind == "story" or after_smalltalk:
                turn, plot = self.story()
                turns.append(turn)
            else:
                turns.append(thanks(rng))
        if chance(rng, 0.1):
            turns.append(farewell(rng))
        return turns

    def _hero(self, plot: Plot) -> Pair:
        question = self._rng.choice(
            ["What was the name of the {k}?", "Who was the hero of the story?", "What was the {k} called?"]
        )
        return question.format(k=plot.kind), f"The {plot.kind} was called {plot.name}."

    def _helper(self, plot: Plot) -> Pair:
        question = self._rng.choice(["Who helped?", "Who was the helper?", f"Who helped {plot.name}?"])
        return question, f"{plot.helper} the {plot.helper_kind} helped {plot.name}."

    def _place(self, plot: Plot) -> Pair:
        question = self._rng.choice([f"Where did {plot.name} live?", "Where does the story take place?"])
        return question, f"{plot.name} lived {plot.place.where} {plot.place.phrase}."

    def _another_story(self, plot: Plot) -> Pair:
        again = replace(plot, problem=random_plot(self._rng, self._options.naming).problem)
        question = self._rng.choice(
            [
                "Tell me another story about {n}.",
                "Another story about {n}, please.",
                "One more story about {n}!",
                "What happened to {n} next?",
            ]
        )
        return question.format(n=plot.name), tell(again, self._rng)


def as_messages(*turns: Pair) -> list[dict[str, str]]:
    """Alternating messages of user and assistant."""
    return [
        {"role": role, "content": content}
        for turn in turns
        for role, content in zip(("user", "assistant"), turn, strict=True)
    ]
