"""Writes the generated text to standard output, and words the report on its speed and a comparison."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import TextIO

from lead.engine_client.answer_stats import AnswerStats
from lead.engine_client.assembler import TextToken
from lead.engine_client.printer import ACCEPTED, RESET
from shared.diagnostics.findings import count
from shared.terminal import sanitize, wants_color

_N_SHOWN = 30


class TextOutput:
    """Writes the text, in color if the terminal supports it. Calls may block, and raise OSError."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._color = wants_color(out, os.environ)

    def write(self, text: str) -> None:
        """Write without color.

        On a terminal control characters are made visible; a pipe gets them unchanged.
        """
        self._put(text, "")

    def write_tokens(self, tokens: Iterable[TextToken]) -> None:
        """Write the text of each token, in color if a drafter predicted it."""
        for token in tokens:
            self._put(token.text, ACCEPTED if token.source and self._color else "")
        self._out.flush()

    def _put(self, text: str, color: str) -> None:
        shown = sanitize(text) if self._out.isatty() else text
        encoding = self._out.encoding or "utf-8"
        shown = shown.encode(encoding, "replace").decode(encoding)
        if shown:
            self._out.write(f"{color}{shown}{RESET}" if color else shown)


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """The text and times of one generation."""

    text: str
    stats: AnswerStats

    @property
    def seconds(self) -> float:
        """The seconds of the whole answer, including the prompt."""
        return self.stats.prompt_seconds + self.stats.generation_seconds


def report(text: GeneratedText) -> str:
    stats = text.stats
    rows = [
        ("prompt", f"{count(stats.n_prompt, 'token')} in {stats.prompt_seconds:.2f} s"),
        (
            "generated",
            f"{count(stats.n_generated, 'token')} in {stats.generation_seconds:.2f} s{_rate(text)}",
        ),
    ]
    if stats.n_drafted:
        rows.append(("drafts", _drafts(stats)))
    return _aligned(rows)


def compare(plain: GeneratedText, drafted: GeneratedText, drafter: str) -> str:
    rows = [
        ("plain", f"{_seconds(plain)}{_rate(plain)}"),
        (f"with {drafter}", f"{_seconds(drafted)}{_rate(drafted)}"),
        ("drafts", _drafts(drafted.stats)),
        ("speed-up", _speed_up(plain, drafted)),
        ("same text", _same(plain.text, drafted.text)),
    ]
    return _aligned(rows)


def _aligned(rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:>{width}}  {text}" for name, text in rows)


def _seconds(text: GeneratedText) -> str:
    return f"{count(text.stats.n_generated, 'token')} in {text.seconds:.2f} s"


def _rate(text: GeneratedText) -> str:
    rate = text.stats.tokens_per_second
    return "" if rate is None else f", {rate:.1f} tokens/s"


def _drafts(stats: AnswerStats) -> str:
    if not stats.n_drafted:
        return "no draft was worth verifying"
    return (
        f"{stats.n_accepted} of {stats.n_drafted} tokens accepted ({stats.n_accepted / stats.n_drafted:.0%})"
    )


def _speed_up(plain: GeneratedText, drafted: GeneratedText) -> str:
    slow, fast = plain.stats.tokens_per_second, drafted.stats.tokens_per_second
    return "the texts are too short to compare" if slow is None or fast is None else f"{fast / slow:.2f}"


def _same(one: str, other: str) -> str:
    if one == other:
        return "yes, every character"
    n_same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    return (
        f"NO: from character {n_same + 1} on, {other[n_same:][:_N_SHOWN]!r} with drafts, and "
        f"{one[n_same:][:_N_SHOWN]!r} without"
    )
