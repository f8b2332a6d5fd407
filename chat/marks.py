"""Which characters of a text came from whom, and where they went when the text was rendered. Pure.

Rendering drops markup, adds bullets and breaks lines, but keeps words and their order: so the words are
looked for in the text as it was written, each behind the one before. What is not found stays unmarked.
"""

import re
from collections.abc import Sequence

_WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")
_WORD_REACH = 400
"""Characters to look ahead for a word: further than a long address that was left out."""
_SIGN_REACH = 8
"""A sign that was not written (a bullet) must not be found in the next sentence."""

Source = str | None


class MarkedText:
    """A text that grows at its end and is taken off at its start."""

    def __init__(self) -> None:
        self.text = ""
        self.sources: list[Source] = []

    @property
    def is_marked(self) -> bool:
        return any(source is not None for source in self.sources)

    def append(self, text: str, source: Source) -> None:
        self.text += text
        self.sources += [source] * len(text)

    def take(self, n: int) -> "MarkedText":
        """Cut off the first `n` characters and return them."""
        taken = MarkedText()
        taken.text, taken.sources = self.text[:n], self.sources[:n]
        self.text, self.sources = self.text[n:], self.sources[n:]
        return taken


def transfer(written: str, sources: Sequence[Source], shown: str) -> list[Source]:
    """The source of each character of `shown`, a rendering of `written`."""
    marks: list[Source] = [None] * len(shown)
    at = 0
    for match in _WORD_OR_SIGN.finditer(shown):
        word = match.group()
        reach = _WORD_REACH if word[0].isalnum() else _SIGN_REACH
        found = written.find(word, at, at + reach + len(word))
        if found >= 0:
            at = found + len(word)
            marks[match.start() : match.end()] = sources[found:at]
    return marks
