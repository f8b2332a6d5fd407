"""Scripted requests, whose answers do not depend on what a model happens to say.

An agent's requests, which quote each other, and, for comparison, texts that only seem to repeat.
"""

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from shared.llama.vocabulary import Vocabulary

Tokenize = Callable[[str], list[int]]

_FILES = ("client.py", "load.py", "proxy.py", "stats.py")
_N_LINES = 9
"""Of a file: what the agent reads and writes at once."""
_NAMES = ("total", "pending", "seconds", "rows", "limit", "found", "first", "cursor", "weights", "margin")
_NAME = re.compile(r"\b[a-z_]{4,}\b")
_REASONS = ("is misleading here", "is used twice", "hides a builtin", "says nothing", "should be plural")
_N_WORDS = 60
_WORD = 3


class ScriptedRequest(NamedTuple):
    """Tokens of a prompt and of its answer."""

    prompt: list[int]
    answer: list[int]


def agent(vocabulary: Vocabulary, n_requests: int, seed: int) -> list[ScriptedRequest]:
    """A loop that reads files and writes them anew, each time with one word changed.

    A request has only what is new in its prompt: an instruction, and what the last tool returned. Its answer
    quotes earlier requests: a file that was read or written before, and the result of the tool before last.
    """

    def tokenize(text: str) -> list[int]:
        return vocabulary.tokenize(text, add_special=False, parse_special=False)

    turns = _turns(random.Random(seed), n_requests)  # noqa: S311 - seeded on purpose
    return [ScriptedRequest(tokenize(prompt), tokenize(answer)) for prompt, answer in turns]


def _turns(rng: random.Random, n_requests: int) -> Iterator[tuple[str, str]]:
    files = {name: _section(name) for name in _FILES}
    results = ["no tool was called", "no tool was called"]
    for i in range(n_requests):
        name, shown = _FILES[i % len(_FILES)], _FILES[(i + 1) % len(_FILES)]
        old = rng.choice(sorted(set(_NAME.findall(files[name]))))
        new = f"{rng.choice(_NAMES)}_{rng.randrange(1000)}"
        files[name] = re.sub(rf"\b{old}\b", new, files[name], count=1)
        result = f"{rng.randrange(5)} failed, {rng.randrange(90)} passed in {rng.random():.2f} s: {old}"
        prompt = f"Next: {name}. The tool has returned:\n{result}\n{files[shown]}\n"
        answer = (
            f"`{old}` {rng.choice(_REASONS)}. Before that, the tests said: {results[-2]}\n"
            f'{{"tool": "write_file", "path": "bench/{name}", "text": """\n{files[name]}"""}}\n'
        )
        results.append(result)
        yield prompt, answer


def _section(name: str) -> str:
    """The first lines of code of a file beside this one, a text that no model was trained on."""
    lines = (Path(__file__).parent / name).read_text("utf-8").splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(("class ", "@", "def ")))
    return "\n".join(lines[first : first + _N_LINES]) + "\n"


def shuffled(vocabulary: Vocabulary, n_requests: int, n_tokens: int, seed: int) -> list[ScriptedRequest]:
    """Texts of the same few words of three tokens, in any order: what follows a word is never known."""
    rng = random.Random(seed)  # noqa: S311 - seeded on purpose
    ordinary = [token for token in range(vocabulary.n_tokens) if token not in vocabulary.end_tokens]
    words = [rng.choices(ordinary, k=_WORD) for _ in range(_N_WORDS)]

    def text(n: int) -> list[int]:
        return [token for _ in range(-(-n // _WORD)) for token in rng.choice(words)][:n]

    return [ScriptedRequest(text(32), text(n_tokens)) for _ in range(n_requests)]
