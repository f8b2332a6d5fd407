"""Small skills: capitals, sums, counting, spelling, colors, sounds, copying, lists.

Every function returns one (question, answer) pair.
"""

import random
from collections.abc import Callable
from functools import partial

from draws import by_share, chance
from names import BOYS, GIRLS, invent
from plots import ANIMALS, COLORS, THINGS
from texts import load

Pair = tuple[str, str]
Skill = Callable[[random.Random], Pair]

_SKILLS = load("skills")
ITEMS: list[str] = _SKILLS["items"]
WORDS: list[str] = _SKILLS["words"]


def _pairs(key: str) -> list[Pair]:
    return [tuple(entry.split(": ")) for entry in _SKILLS[key]]


_CAPITALS, _OPPOSITES = _pairs("capitals"), _pairs("opposites")
_SOUNDS, _THING_COLORS = _pairs("sounds"), _pairs("thing_colors")
COUNTRIES = [country for country, _ in _CAPITALS]


def weighted_skills(largest: int, hard: int) -> list[tuple[Skill, int]]:
    """Each skill and its weight: sums up to `largest`; what is learned last comes `hard` times as often."""
    return [
        (capital, 4 * hard),
        (partial(arithmetic, largest=largest), 3 * hard),
        (word_problem, 1 * hard),
        (counting, 2),
        (spelling, 3 * hard),
        (facts, 3),
        (copying, 3),
        (rewriting, 3),
    ]


def capital(rng: random.Random) -> Pair:
    country, city = rng.choice(_CAPITALS)
    question = rng.choice(
        [
            "What is the capital of {c}?",
            "What's the capital of {c}?",
            "Tell me the capital of {c}.",
            "Which city is the capital of {c}?",
            "capital of {c}?",
            "Do you know the capital of {c}?",
            "Name the capital of {c}.",
            "what is the capital of {c}",
        ]
    ).format(c=country)
    if chance(rng, 0.15):
        return f"{city} is the capital of which country?", f"{city} is the capital of {country}."
    return question, f"The capital of {country} is {city}" + ("" if city.endswith(".") else ".")


def arithmetic(rng: random.Random, largest: int) -> Pair:
    """A sum or a difference of numbers up to `largest`."""
    a, b = rng.randint(0, largest), rng.randint(0, largest)
    if chance(rng, 0.5):
        question = rng.choice(
            [
                "What is {a} + {b}?",
                "What is {a} plus {b}?",
                "{a} + {b} =",
                "How much is {a} plus {b}?",
                "Please add {a} and {b}.",
                "Calculate {a} + {b}.",
            ]
        )
        return question.format(a=a, b=b), f"{a} + {b} = {a + b}"
    a, b = max(a, b), min(a, b)
    question = rng.choice(
        [
            "What is {a} - {b}?",
            "What is {a} minus {b}?",
            "{a} - {b} =",
            "How much is {a} minus {b}?",
            "Subtract {b} from {a}.",
            "Calculate {a} - {b}.",
        ]
    )
    return question.format(a=a, b=b), f"{a} - {b} = {a - b}"


def word_problem(rng: random.Random) -> Pair:
    name = rng.choice(GIRLS + BOYS)
    item = rng.choice(["apples", "marbles", "books", "coins", "cookies", "shells", "pencils"])
    a, b = rng.randint(1, 10), rng.randint(1, 10)
    if chance(rng, 0.5):
        question = f"{name} has {a} {item} and gets {b} more. How many {item} does {name} have now?"
        return question, f"{a} + {b} = {a + b}, so {name} now has {a + b} {item}."
    a, b = max(a, b) + 1, min(a, b)
    question = f"{name} has {a} {item} and gives away {b}. How many {item} are left?"
    return question, f"{a} - {b} = {a - b}, so {name} has {a - b} {item} left."


def counting(rng: random.Random) -> Pair:
    kinds = (
        (0.5, _count_up),
        (0.7, _count_down),
        (0.85, _number_word),
        (0.93, _next_day),
        (1.0, _next_month),
    )
    return by_share(rng, kinds)(rng)


def _count_up(rng: random.Random) -> Pair:
    first = rng.choice([1, 1, 1, rng.randint(1, 15)])
    last = first + rng.randint(3, 12)
    question = rng.choice(
        [
            "Count from {a} to {b}.",
            "Please count from {a} to {b}.",
            "Can you count from {a} to {b}?",
            "count from {a} to {b}",
        ]
    )
    return question.format(a=first, b=last), ", ".join(str(i) for i in range(first, last + 1))


def _count_down(rng: random.Random) -> Pair:
    n = rng.randint(3, 12)
    question = rng.choice(
        ["Count down from {n} to 1.", "Please count backwards from {n}.", "Count down from {n}."]
    )
    return question.format(n=n), ", ".join(str(i) for i in range(n, 0, -1))


def _number_word(rng: random.Random) -> Pair:
    n = rng.randint(0, 20)
    question = rng.choice(["Write the number {n} as a word.", "How do you write {n} in words?"])
    return question.format(n=n), f"{n} is written as {_SKILLS['numbers'][n]}."


def _next_day(rng: random.Random) -> Pair:
    days: list[str] = _SKILLS["days"]
    i = rng.randrange(len(days))
    question = rng.choice([f"Which day comes after {days[i]}?", f"What day comes after {days[i]}?"])
    return question, f"After {days[i]} comes {days[(i + 1) % len(days)]}."


def _next_month(rng: random.Random) -> Pair:
    months: list[str] = _SKILLS["months"]
    i = rng.randrange(len(months))
    return (
        f"Which month comes after {months[i]}?",
        f"After {months[i]} comes {months[(i + 1) % len(months)]}.",
    )


def spelling(rng: random.Random) -> Pair:
    word = rng.choice(WORDS)
    letters = "-".join(word.upper())
    if chance(rng, 0.15):
        question = f"How many letters does the word {word} have?"
        return question, f"The word {word} has {len(word)} letters: {letters}."
    question = rng.choice(
        [
            "Spell the word {w}.",
            "How do you spell {w}?",
            "Please spell {w}.",
            "Can you spell {w} letter by letter?",
            "spell {w}",
        ]
    )
    return question.format(w=word), f"{word}: {letters}"


def facts(rng: random.Random) -> Pair:
    return by_share(rng, ((0.35, _sound), (0.65, _color), (1.0, _opposite)))(rng)


def _sound(rng: random.Random) -> Pair:
    animal, sound = rng.choice(_SOUNDS)
    one = f"an {animal}" if animal[0] in "aeiou" else f"a {animal}"
    question = rng.choice(
        [f"What sound does {one} make?", f"What does {one} say?", f"Which sound does {one} make?"]
    )
    return question, f"{one[0].upper()}{one[1:]} says {sound}."


def _color(rng: random.Random) -> Pair:
    thing, color = rng.choice(_THING_COLORS)
    question = rng.choice(
        [f"What color is {thing}?", f"Which color does {thing} have?", f"What colour is {thing}?"]
    )
    return question, f"{thing[0].upper()}{thing[1:]} is {color}."


def _opposite(rng: random.Random) -> Pair:
    one, other = rng.choice(_OPPOSITES)
    if chance(rng, 0.3):
        one, other = other, one
    question = rng.choice(
        [f"What is the opposite of {one}?", f"Tell me the opposite of {one}.", f"opposite of {one}?"]
    )
    return question, f"The opposite of {one} is {other}."


def copying(rng: random.Random) -> Pair:
    text = _sentence(rng)
    if chance(rng, 0.25):
        text += " " + _sentence(rng)
    if chance(rng, 0.15):
        text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(2, 7)))
    question = rng.choice(
        [
            "Repeat after me: {s}",
            "Say exactly this: {s}",
            "Please repeat this sentence: {s}",
            "Copy this text: {s}",
            "Repeat: {s}",
            "Write this sentence again: {s}",
            "Say: {s}",
        ]
    )
    return question.format(s=text), text


def _sentence(rng: random.Random) -> str:
    subjects, times = _SKILLS["subjects"], _SKILLS["times"]
    text = f"{rng.choice(subjects)} {rng.choice(_SKILLS['verbs'])} {rng.choice(_SKILLS['things'])}"
    if chance(rng, 0.6):
        text += " " + rng.choice(times)
    if chance(rng, 0.2):
        text = f"{invent(rng)} and {invent(rng)} visit {rng.choice(subjects)} {rng.choice(times)}"
    return text[0].upper() + text[1:] + "."


def rewriting(rng: random.Random) -> Pair:
    """Something done to a list of a few things."""
    pool = rng.choice([ITEMS, ITEMS, ANIMALS, COLORS, [thing.name for thing in THINGS]])
    items = rng.sample(pool, rng.randint(3, 6))
    kinds = (
        (0.3, _bullets),
        (0.55, _numbered),
        (0.7, _backwards),
        (0.8, _capitals),
        (0.9, _first),
        (1.0, _last),
    )
    return by_share(rng, kinds)(rng, items)


def _bullets(rng: random.Random, items: list[str]) -> Pair:
    question = rng.choice(
        ["Turn this into a bullet list: {j}", "Write these as a list with dashes: {j}", "Make a list: {j}"]
    )
    return question.format(j=", ".join(items)), "\n".join(f"- {item}" for item in items)


def _numbered(rng: random.Random, items: list[str]) -> Pair:
    question = rng.choice(
        ["Number these items: {j}", "Make a numbered list: {j}", "Turn this into a numbered list: {j}"]
    )
    return question.format(j=", ".join(items)), "\n".join(f"{n}. {item}" for n, item in enumerate(items, 1))


def _backwards(rng: random.Random, items: list[str]) -> Pair:
    question = rng.choice(["Write this list backwards: {j}", "Reverse this list: {j}"])
    return question.format(j=", ".join(items)), ", ".join(reversed(items))


def _capitals(rng: random.Random, _items: list[str]) -> Pair:
    """Of words that are short and few, because capitals are tokenized letter by letter."""
    question = rng.choice(["Write this list in capital letters: {j}", "Rewrite in upper case: {j}"])
    pool = [*COLORS, "apple", "bread", "cat", "dog", "fox", "milk", "tea", "rice"]
    items = ", ".join([rng.choice(pool) for _ in range(3)])
    return question.format(j=items), items.upper()


def _first(_rng: random.Random, items: list[str]) -> Pair:
    return f"What is the first item of this list? {', '.join(items)}", f"The first item is {items[0]}."


def _last(_rng: random.Random, items: list[str]) -> Pair:
    return f"What is the last item of this list? {', '.join(items)}", f"The last item is {items[-1]}."
