"""The generated text on standard output."""

import os
from collections.abc import Iterable
from typing import TextIO

from lead.generation.assembler import TextToken
from lead.generation.printer import ACCEPTED, RESET
from shared.terminal import sanitize, wants_colour


class TextOutput:
    """Writes as it is told, in color where the terminal has some. Calls may block, and raise OSError."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._colour = wants_colour(out, os.environ)

    def write(self, text: str) -> None:
        """Without color. On a terminal control characters are made visible; a pipe gets them as they are."""
        self._put(text, "")

    def write_tokens(self, tokens: Iterable[TextToken]) -> None:
        """The text of each token, in color if a drafter predicted it."""
        for token in tokens:
            self._put(token.text, ACCEPTED if token.source and self._colour else "")
        self._out.flush()

    def _put(self, text: str, colour: str) -> None:
        shown = sanitize(text) if self._out.isatty() else text
        encoding = self._out.encoding or "utf-8"
        shown = shown.encode(encoding, "replace").decode(encoding)
        if shown:
            self._out.write(f"{colour}{shown}{RESET}" if colour else shown)
