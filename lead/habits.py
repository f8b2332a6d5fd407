"""Commands that people know from Ollama: what `lead` does for them, or a sentence with what does."""

import re
import sys
from collections.abc import Mapping, Sequence
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
"""What the word stands for."""
_RUNS_ELSEWHERE: Final[Mapping[str, str]] = {
    "run": "`lead {model}` serves a model; then open http://127.0.0.1:5555/ or ask with `chat`",
    "ps": "http://127.0.0.1:5555/ shows what a running lead has loaded, and `lead doctor` examines it",
    "stop": "Ctrl-C ends a lead, `lead service remove` a service; --sleep-idle-seconds frees its memory",
    "cp": "a model has as many names as you like: `lead {model} --alias NAME,NAME`",
    "create": "there are no Modelfiles: give their parameters as options (`lead --help sampling`)",
    "push": "upload models with `hf upload`, of huggingface_hub",
    "signin": "set HF_TOKEN for models of the hub that need an account",
    "launch": "docs/recipes.md says what to set in other programs",
}
"""What does it."""
_SERVE: Final = "serve"
_OF_HUB: Final = re.compile(r"(?:https?://)?(?:hf\.co|huggingface\.co)/(.+)|([\w.-]+/[\w.-]+(?::[\w.-]+)?)")


def translated(arguments: Sequence[str]) -> list[str]:
    """The command line of `lead` with the same meaning; ends the program if another one does it."""
    word, *rest = arguments or [""]
    if word in _RUNS_ELSEWHERE:
        model = " ".join(_model_words(rest[0])) if rest and not rest[0].startswith("-") else "--model FILE"
        _end(f"{word}: {_RUNS_ELSEWHERE[word].format(model=model)}")
    if word == "help" and rest:
        return [*rest, "--help"]
    if word == _SERVE:
        return [*_model_words(rest[0]), *rest[1:]] if rest and not rest[0].startswith("-") else rest
    return [*_SAME.get(word, (word,)), *rest] if arguments else []


def _model_words(name: str) -> list[str]:
    """The option for a model that is named as in Ollama."""
    if (found := _OF_HUB.fullmatch(name)) and not name.endswith(".gguf"):
        return ["-hf", found[1] or found[2]]
    return ["--model", name]


def _end(sentence: str) -> NoReturn:
    sys.stderr.write(f"lead {sanitize(sentence)}\n")
    sys.exit(2)
