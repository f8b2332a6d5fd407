"""Questions for the target, made of templates, WordNet's words and the functions of Python's library.

    python prompts.py --wordnet DIR --count 90000 --seed 1 --out prompts.jsonl

Each line is {"kind": "chat" | "math" | "code" | "completion", "prompt": text}, no prompt twice. No text of
HumanEval or GSM8K is read; `heldout.py` checks that none is alike.
"""

import argparse
import ast
import json
import random
import re
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_KINDS = {"chat": 0.40, "math": 0.22, "code": 0.26, "completion": 0.12}
_N_WORDS = 4000  # of each part of speech, the most frequent ones
_DOCSTRING = range(31, 400)  # characters
_SHARE_OF_FUNCTIONS = 0.6  # of the questions about code
_SHARE_OF_LIBRARY = 0.4  # of the functions
_SHARE_OF_NUMBERS = 0.6  # of the exercises
_IMPORTS = "from typing import Dict, List, Optional\n\n\n"


class Questions:
    """Draws questions; the same seed gives the same ones."""

    def __init__(self, wordnet: Path, seed: int) -> None:
        self._random = random.Random(seed)
        self._texts = tomllib.loads(Path(__file__).with_name("prompts.toml").read_text(encoding="utf-8"))
        self._nouns, self._verbs, self._adjectives = (_words(wordnet, i) for i in ("noun", "verb", "adj"))
        self._functions = sorted(set(_library_functions()))

    def draw(self) -> dict[str, str]:
        kind = self._random.choices(list(_KINDS), list(_KINDS.values()))[0]
        return {"kind": kind, "prompt": getattr(self, f"_{kind}")()}

    def _chat(self) -> str:
        return self._fill(self._pick(self._texts["chat"]["templates"]))

    def _math(self) -> str:
        return self._fill(self._pick(self._texts["math"]["templates"])) + self._pick(
            self._texts["math"]["endings"]
        )

    def _code(self) -> str:
        code = self._texts["code"]
        if self._random.random() < _SHARE_OF_FUNCTIONS:
            return self._pick(code["asking"]).replace("{code}", self._function())
        question = self._pick(code["questions"]).replace("{task}", self._pick(code["tasks"]))
        return self._fill(question.replace("{concept}", self._pick(self._texts["lists"]["concept"]))).replace(
            "{code}", self._function()
        )

    def _completion(self) -> str:
        """The beginning of a file that goes on without any chat."""
        return self._function() + "\n"

    def _function(self) -> str:
        if self._random.random() < _SHARE_OF_LIBRARY:
            return self._pick(self._functions)
        name, parameter, says, result, examples = self._exercise()
        lines = [f"    >>> {name}({shown})\n    {value}" for shown, value in examples]
        imports = _IMPORTS if re.search("Dict|List|Optional", parameter + result) else ""
        return (
            f'{imports}def {name}({parameter}) -> {result}:\n    """{says}\n' + "\n".join(lines) + '\n    """'
        )

    def _exercise(self) -> tuple[str, str, str, str, list[tuple[str, str]]]:
        """Name, parameter, sentence, result type and worked examples of a small function."""
        code, on_numbers = self._texts["code"], self._random.random() < _SHARE_OF_NUMBERS
        name, says, result, value = self._pick(code["numbers" if on_numbers else "words"])
        short, long, condition = self._pick(code["number_sets" if on_numbers else "word_sets"])
        chosen = f"[i for i in x if {condition}]"
        examples = []
        for _ in range(self._random.randint(1, 3)):
            x = (
                self._numbers()
                if on_numbers
                else [self._pick(self._nouns)[0] for _ in range(self._random.randint(2, 6))]
            )
            shown = x if on_numbers else " ".join(x)
            # The expressions are this folder's own.
            answer = eval(value.format(f=chosen), {"x": x})  # noqa: S307
            examples.append((repr(shown), repr(answer)))
        variable = self._pick(
            ["numbers", "values", "items", "lst"] if on_numbers else ["text", "sentence", "s"]
        )
        parameter = f"{variable}: List[int]" if on_numbers else f"{variable}: str"
        return name.format(s=short), parameter, says.format(t=long), result, examples

    def _numbers(self) -> list[int]:
        return [self._random.randint(-20, 120) for _ in range(self._random.randint(3, 7))]

    def _fill(self, template: str) -> str:
        lists = self._texts["lists"]
        noun, meaning = self._pick(self._nouns)
        values = {
            "noun": noun, "meaning": meaning, "noun2": self._pick(self._nouns)[0],
            "verb": self._pick(self._verbs)[0], "adjective": self._pick(self._adjectives)[0],
            "a": str(self._random.randint(20, 400)), "b": str(self._random.randint(2, 30)),
            "c": str(self._random.randint(2, 20)), "d": str(self._random.randint(2, 12)),
        }  # fmt: skip
        for name, choices in lists.items():
            first, second = self._random.sample(choices, 2)
            values |= {name: first, f"{name}2": second}
        return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), template)

    def _pick(self, choices: list[Any]) -> Any:
        return self._random.choice(choices)


def _words(wordnet: Path, part: str) -> list[tuple[str, str]]:
    """The most frequent words of a part of speech, with WordNet's meaning of each, up to its examples."""
    meanings = {}
    for line in (wordnet / f"data.{part}").read_text(encoding="latin-1").splitlines():
        if not line.startswith(" "):
            meanings[line[:8]] = line.split("| ", 1)[1].split(";")[0].split('"')[0].strip()
    ranked = []
    for line in (wordnet / f"index.{part}").read_text(encoding="latin-1").splitlines():
        if not line.startswith(" "):
            fields = line.split()
            n_senses, n_tagged = int(fields[2]), int(fields[4 + int(fields[3])])
            if fields[0].replace("_", "").isalpha():
                ranked.append((-n_tagged, -n_senses, fields[0].replace("_", " "), fields[-n_senses]))
    return [(word, meanings[offset]) for _, _, word, offset in sorted(ranked)[:_N_WORDS]]


def _library_functions() -> Iterator[str]:
    """Signature and docstring of each documented function of Python's own library."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        source = path.read_text(encoding="utf-8", errors="replace")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and not node.decorator_list:
                says = ast.get_docstring(node) or ""
                if len(says) in _DOCSTRING:
                    says = says.replace("\n", "\n    ")
                    yield f'def {node.name}({ast.unparse(node.args)}):\n    """{says}\n    """'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wordnet", type=Path, required=True, help="the folder with data.noun")
    parser.add_argument("--count", type=int, default=90000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    questions = Questions(arguments.wordnet, arguments.seed)
    asked: set[str] = set()
    with arguments.out.open("w", encoding="utf-8") as file:
        while len(asked) < arguments.count:
            question = questions.draw()
            if question["prompt"] not in asked:
                asked.add(question["prompt"])
                file.write(json.dumps(question) + "\n")


if __name__ == "__main__":
    main()
