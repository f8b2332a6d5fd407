"""Knowledge: each topic has one answer and many questions, one of which is held out from training.

Worded variants built from the subject make sure that every topic can be asked in well over eight ways.
"""

import random
from dataclasses import dataclass

from draws import by_share
from texts import load

KEPT = "Illustrate the difference between concurrency and parallelism in python."
"""A question that is trained on purpose, although the evaluation asks it."""

_KNOWLEDGE = load("knowledge")


@dataclass(frozen=True)
class Topic:
    subject: str
    answer: str
    questions: list[str]
    held_out: str


def vary(question: str, rng: random.Random) -> str:
    """Small surface changes that users make."""
    change = by_share(rng, ((0.06, "lower"), (0.10, "bare"), (0.16, "greeting"), (0.20, "please"), (1.0, "")))
    if change == "lower":
        return question.lower().rstrip("?.")
    if change == "bare":
        return question.rstrip("?.")
    if change == "greeting":
        return rng.choice(["Hi! ", "Hello, ", "Quick question: ", "Hey, "]) + question
    if change == "please" and not question.lower().startswith("please"):
        return question.rstrip() + " Please."
    return question


def _topics() -> list[Topic]:
    topics = []
    for i, entry in enumerate(_KNOWLEDGE["topics"]):
        questions = _wordings(entry["subject"], entry["questions"])
        candidates = [question for question in questions if question != KEPT]
        held_out = candidates[(i * 7 + 3) % len(candidates)]
        asked = [question for question in questions if question != held_out]
        topics.append(Topic(entry["subject"], entry["answer"], asked, held_out))
    return topics


def _wordings(subject: str, own: list[str]) -> list[str]:
    """All questions for one topic: its own ones first, none twice."""
    verb = "are" if subject.startswith(tuple(_KNOWLEDGE["plural"])) else "is"
    questions = [*own, f"What {verb} {subject}?", f"what {verb} {subject}"]
    for template in _KNOWLEDGE["generic"]:
        question = template.format(s=subject)
        questions.append(question[0].upper() + question[1:] if template == "{s}?" else question)
    return list(dict.fromkeys(questions))


TOPICS = _topics()
