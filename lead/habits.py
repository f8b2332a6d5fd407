"""Translates commands that people know from Ollama to commands of `lead`, or explains how to do the same."""

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NoReturn

from shared.terminal import sanitize

_SAME: Final[Mapping[str, tuple[str, ...]]] = {
    "help": ("--help",),
    "list": ("models", "list"),
    "ls": ("models", "list"),
    "pull": ("models", "pull"),
    "rm": ("models", "remove"),
    "show": ("models", "show"),
    "version": ("--version",),
}
"""For each command of Ollama, the words after `lead` that have the same effect."""
_RUNS_ELSEWHERE: Final[Mapping[str, str]] = {
    "run": "`lead {model}` serves a model. Then open http://127.0.0.1:5555/ or run `chat`",
    "ps": "http://127.0.0.1:5555/ shows the models in memory. `lead doctor` examines a running lead",
    "stop": "Ctrl-C stops a lead. `lead service remove` removes a service. --sleep-idle-seconds frees memory",
    "cp": "`lead {model} --alias NAME,NAME` gives a model more names",
    "create": "Modelfiles are not supported. Set their parameters as options (`lead --help sampling`)",
    "push": "`hf upload` of huggingface_hub uploads models",
    "signin": "set HF_TOKEN for models that need a Hugging Face account",
    "launch": "docs/recipes.md shows the settings of other programs",
}
"""The explanation for each command of Ollama that `lead` does not have."""
_SERVE: Final = "serve"
_OF_HUB: Final = re.compile(r"(?:https?://)?(?:hf\.co|huggingface\.co)/(.+)|([\w.-]+/[\w.-]+(?::[\w.-]+)?)")


def translated(arguments: Sequence[str], subcommands: Collection[str]) -> list[str]:
    """Return `lead`'s arguments for a command line of Ollama; other command lines are returned unchanged.
    Prints an explanation and exits with status 2 if `lead` has no such command.
    """
    word, *rest = arguments or [""]
    if word in _RUNS_ELSEWHERE:
        model = " ".join(_model_words(rest[0])) if rest and not rest[0].startswith("-") else "--model FILE"
        _end(f"{word}: {_RUNS_ELSEWHERE[word].format(model=model)}")
    if word == "help" and rest:
        is_topic = rest[0] not in {*subcommands, *_SAME, *_RUNS_ELSEWHERE, _SERVE}
        return ["--help", *rest] if is_topic else translated([*rest, "--help"], subcommands)
    if word == _SERVE:
        return [*_model_words(rest[0]), *rest[1:]] if rest and not rest[0].startswith("-") else rest
    return [*_SAME.get(word, (word,)), *rest] if arguments else []


def _model_words(name: str) -> list[str]:
    """Return the option for the model of a command line of Ollama."""
    if (found := _OF_HUB.fullmatch(name)) and not name.endswith(".gguf"):
        return ["-hf", found[1] or found[2]]
    return ["--model", name]


def _end(sentence: str) -> NoReturn:
    sys.stderr.write(f"lead {sanitize(sentence)}\n")
    sys.exit(2)
