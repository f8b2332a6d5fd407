"""Everything chat writes goes through here: sanitised, coloured where a terminal shows it, plain elsewhere.

Answers go to one stream (stdout), all else to another (stderr), so that a redirected answer is nothing else.
"""

from collections.abc import Mapping
from typing import TextIO

from shared.terminal import sanitize, wants_colour

RESET = "\x1b[0m"
DIM = "\x1b[2m"
RED = "\x1b[31m"
SOURCE_COLOURS = (
    "\x1b[32m",
    "\x1b[36m",
    "\x1b[35m",
    "\x1b[33m",
    "\x1b[34m",
    "\x1b[92m",
    "\x1b[96m",
    "\x1b[95m",
)
"""In order of a source's first appearance; red is for errors."""


class Screen:
    """The one place that writes; flushes at once, because an answer is read while it comes."""

    def __init__(self, out: TextIO, err: TextIO, environment: Mapping[str, str]) -> None:
        self._out = out
        self._err = err
        self._colour_out = wants_colour(out, environment)
        self._colour_err = wants_colour(err, environment)
        self._colours: dict[str, str] = {}
        self._line_is_open = False

    def token(self, text: str, source: str | None) -> None:
        """Show one token of an answer, in its source's colour."""
        if not text:
            return
        shown = sanitize(text)
        if source is not None and self._colour_out:
            shown = f"{self._colour_of(source)}{shown}{RESET}"
        self._write(self._out, shown)
        self._line_is_open = not text.endswith("\n")

    def end_answer(self, *, empty: bool = False) -> None:
        """End the answer's last line; one for which nothing came is an empty line."""
        if self._line_is_open or empty:
            self._write(self._out, "\n")
        self._line_is_open = False

    def say(self, text: str) -> None:
        """Show what a command found."""
        self._line(text, "")

    def note(self, text: str) -> None:
        """Show something that may be overlooked."""
        self._line(text, DIM)

    def error(self, text: str) -> None:
        self._line(text, RED)

    def sources(self, n_accepted: Mapping[str, int]) -> None:
        """The legend: each source in its colour, with the number of its accepted tokens."""
        for source, n in n_accepted.items():
            self._line(f"  {source}: {n} accepted", self._colour_of(source))

    def _line(self, text: str, style: str) -> None:
        self.end_answer()
        shown = sanitize(text)
        if style and self._colour_err:
            shown = f"{style}{shown}{RESET}"
        self._write(self._err, f"{shown}\n")

    def _colour_of(self, source: str) -> str:
        return self._colours.setdefault(source, SOURCE_COLOURS[len(self._colours) % len(SOURCE_COLOURS)])

    @staticmethod
    def _write(stream: TextIO, text: str) -> None:
        stream.write(text)
        stream.flush()
