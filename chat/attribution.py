"""Finds the source of each character of a text, before and after rendering. No I/O.

Rendering drops markup, adds bullets and breaks lines, but keeps words and their order. So each rendered word
is looked up in the original text, after the previous word. A word that is not found has no source.
"""

import re
from collections.abc import Sequence

_WORD_OR_PUNCTUATION = re.compile(r"\w+|[^\w\s]")
_WORD_REACH = 400
"""The number of characters to search ahead for a word: more than a long URL that rendering has left out."""
_PUNCTUATION_REACH = 8
"""The same number for punctuation, lower so that a bullet added by rendering is not found in later text."""

Source = str | None


class AttributedText:
    """A text with the source of each character; grows at its end and shrinks at its start."""

    def __init__(self) -> None:
        self.text = ""
        self.sources: list[Source] = []

    @property
    def has_sources(self) -> bool:
        return any(source is not None for source in self.sources)

    def append(self, text: str, source: Source) -> None:
        self.text += text
        self.sources += [source] * len(text)

    def take(self, n: int) -> "AttributedText":
        """Remove the first `n` characters and return them."""
        taken = AttributedText()
        taken.text, taken.sources = self.text[:n], self.sources[:n]
        self.text, self.sources = self.text[n:], self.sources[n:]
        return taken


def transfer(written: str, sources: Sequence[Source], shown: str) -> list[Source]:
    """Return the source of each character of `shown`, which is a rendering of the text `written` with
    `sources`.
    """
    marks: list[Source] = [None] * len(shown)
    at = 0
    for match in _WORD_OR_PUNCTUATION.finditer(shown):
        word = match.group()
        reach = _WORD_REACH if word[0].isalnum() else _PUNCTUATION_REACH
        found = written.find(word, at, at + reach + len(word))
        if found >= 0:
            at = found + len(word)
            marks[match.start() : match.end()] = sources[found:at]
    return marks


ANSI_COLORS = {
    "green": "\x1b[32m",
    "cyan": "\x1b[36m",
    "magenta": "\x1b[35m",
    "yellow": "\x1b[33m",
    "blue": "\x1b[34m",
    "bright_green": "\x1b[92m",
    "bright_cyan": "\x1b[96m",
    "bright_magenta": "\x1b[95m",
}
"""rich's names of colors, and their escape sequences, in the order in which sources get them. Red is for
errors.
"""

_NAMES = tuple(ANSI_COLORS)


class SourceColors:
    """The color of each source, which stays the same for the session.

    If there are more sources than colors, some share a color.
    """

    def __init__(self) -> None:
        self._chosen: dict[str, str] = {}

    def name_of(self, source: str) -> str:
        return self._chosen.setdefault(source, _NAMES[len(self._chosen) % len(_NAMES)])

    def escape_of(self, source: str) -> str:
        return ANSI_COLORS[self.name_of(source)]
