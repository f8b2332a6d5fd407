"""Questions of several kinds, drawn from a seed, that the built-in pair of models can answer.

The kinds differ in how well a draft model predicts the answer: knowledge is memorized, stories are closest to
real use, copying repeats the prompt.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial

from lab.measuring.questions import BUILT_IN, ChatQuestion, choose, hash_seed, read_questions

_NAMES = ("Zorvi", "Mina", "Kenji", "Pixo", "Yara", "Noah", "Bep", "Amara", "Otto", "Leila", "Hugo", "Freya")
_HEROES = (
    "fox", "dolphin", "robot", "whale", "baker", "girl", "cook", "mouse", "dragon", "cat", "bear", "owl",
)  # fmt: skip
_TROUBLES = ("gets lost", "is afraid of the dark", "looks for a hidden treasure", "tries to fall asleep")
_OBJECTS = ("red umbrella", "brass compass", "yellow letter", "silver key", "violin", "magic wand")
_TOPICS = (
    "speculative decoding", "rejection sampling", "memory bandwidth", "the KV cache", "quantization", "GGUF",
    "batching", "temperature", "byte pair encoding", "a transformer", "distillation", "HTTP", "git",
    "the water cycle", "the planets", "photosynthesis", "honey bees", "volcanoes", "making tea", "a rainbow",
)  # fmt: skip
_CODE_TOPICS = (
    "concurrency and parallelism in python", "threads in python", "asyncio", "dictionaries in python",
    "functions in python", "loops in python", "list comprehensions", "exceptions in python",
    "a python generator", "recursion",
)  # fmt: skip
_SUBJECTS = ("the old sailor", "my little sister", "a tired robot", "our neighbor", "a brave mouse")
_VERBS = ("carries", "paints", "finds", "hides", "remembers", "repairs", "borrows", "keeps")
_THINGS = ("a silver spoon", "an empty box", "three warm cookies", "a broken clock", "the secret map")
_TIMES = ("in the morning", "after dinner", "near the harbor", "at midnight", "under the bridge")
_ITEMS = (
    "apples", "bread", "butter", "carrots", "cheese", "eggs", "flour", "honey", "lemons", "milk", "noodles",
    "oats", "onions", "pears", "plums", "rice", "salt", "tea", "tomatoes", "yogurt",
)  # fmt: skip


def draw(kinds: Sequence[str], n_each: int, seed: int) -> list[ChatQuestion]:
    """Draw `n_each` questions of each kind; the same for the same seed. Raises KeyError."""
    questions = []
    for kind in kinds:
        # A kind's questions do not depend on which other kinds are asked for.
        rng = random.Random(f"{seed} {kind}")  # noqa: S311 - a seeded choice is wanted
        questions += [ChatQuestion(kind, KINDS[kind](rng), rng.randrange(1 << 31)) for _ in range(n_each)]
    return questions


def rounds_of(sources: Sequence[str], n_each: int, n_repeats: int, seed: int) -> list[list[ChatQuestion]]:
    """Return different questions for each repeat, `n_each` of each kind. Raises ConfigError.

    sources: each is one of `KINDS`, "built-in" for all of them, a public data set, or a file.
    """
    kinds = [kind for each in sources for kind in (KINDS if each == BUILT_IN else [each]) if kind in KINDS]
    others = [read_questions(each) for each in sources if each != BUILT_IN and each not in KINDS]
    rounds = []
    for repeat in range(n_repeats):
        drawn = draw(kinds, n_each, hash_seed(seed, repeat))
        for found in others:
            drawn += choose(found, n_each, seed, repeat)
        rounds.append(drawn)
    return rounds


def _story(rng: random.Random) -> str:
    hero, name, trouble = rng.choice(_HEROES), rng.choice(_NAMES), rng.choice(_TROUBLES)
    opening = rng.choice(("Tell me a story about", "Write a short story about", "Make up a story about"))
    return f"{opening} a {hero} named {name} who {trouble}, with a {rng.choice(_OBJECTS)}."


def _ask_about(topics: Sequence[str], rng: random.Random) -> str:
    topic = rng.choice(topics)
    return rng.choice(
        ("Explain {}.", "Tell me about {}.", "Teach me about {}.", "Can you explain {}?")
    ).format(topic)


def _copying(rng: random.Random) -> str:
    command = rng.choice(("Repeat after me:", "Please repeat this sentence:", "Copy this text:"))
    return f"{command} {_sentence(rng)} {_sentence(rng)}"


def _sentence(rng: random.Random) -> str:
    words = (rng.choice(_SUBJECTS), rng.choice(_VERBS), rng.choice(_THINGS), rng.choice(_TIMES))
    text = " ".join(words)
    return f"{text[0].upper()}{text[1:]}."


def _list(rng: random.Random) -> str:
    command = rng.choice(("Make a numbered list:", "Turn this into a bullet list:", "Number these items:"))
    return f"{command} {', '.join(rng.sample(_ITEMS, 6))}"


KINDS: dict[str, Callable[[random.Random], str]] = {
    "stories": _story,
    "knowledge": partial(_ask_about, _TOPICS),
    "copying": _copying,
    "lists": _list,
    "code": partial(_ask_about, _CODE_TOPICS),
}
