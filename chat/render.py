"""Writes what chat shows: sanitized, in color on a terminal, plain elsewhere.

Answers go to one stream (stdout), everything else to another (stderr), so that redirected output has
only the answer. `TerminalScreen` redraws answers on a terminal; `JsonScreen` prints them for programs.
"""

import json
from collections.abc import Mapping
from typing import TextIO

from chat import report
from chat.answer import ChatAnswer, Piece
from chat.attribution import SourceColors
from shared.terminal import sanitize, wants_color

RESET = "\x1b[0m"
DIM = "\x1b[2m"
RED = "\x1b[31m"


class Screen:
    """Writes answers and messages, and flushes them at once, because people read while an answer streams."""

    def __init__(
        self, out: TextIO, err: TextIO, environment: Mapping[str, str], *, with_summary: bool = False
    ) -> None:
        """`with_summary`: show statistics under each answer."""
        self._out = out
        self._err = err
        self._color_out = wants_color(out, environment)
        self._color_err = wants_color(err, environment)
        self._sums_up = with_summary
        self._colors = SourceColors()
        self._is_shown = True
        self._line_is_open = False

    def begin_answer(self, answer: ChatAnswer, *, shown: bool = True) -> None:
        """Start an answer: the next pieces belong to it. If `shown` is false, it is measured but
        not written.
        """
        del answer
        self._is_shown = shown

    def show_piece(self, piece: Piece) -> None:
        """Show a piece of an answer, in its source's color."""
        if not piece.text or piece.is_reasoning or not self._is_shown:
            return
        shown = sanitize(piece.text)
        if piece.source is not None and self._color_out:
            shown = f"{self._colors.escape_of(piece.source)}{shown}{RESET}"
        self._write(self._out, shown)
        self._line_is_open = not piece.text.endswith("\n")

    def end_answer(self, *, empty: bool = False) -> None:
        """End the last line of the answer; an answer without text becomes an empty line."""
        if self._line_is_open or (empty and self._is_shown):
            self._write(self._out, "\n")
        self._line_is_open = False

    def show_summary(self, answer: ChatAnswer) -> None:
        """Show statistics and the legend of colors below an answer that is complete or was stopped."""
        if not self._sums_up:
            return
        parts = [(part, DIM) for part in report.summary(answer)]
        parts += [
            (f"■ {source} {n}", self._colors.escape_of(source))
            for source, n in answer.n_accepted_by_source.items()
        ]
        for line in report.filled([text for text, _ in parts], self.columns):
            shown = [self._styled(*parts.pop(0)) for _ in line]
            self._write(self._err, report.SEPARATOR.join(shown) + "\n")

    def show_answer(self, text: str) -> None:
        self.show(text)

    def show(self, text: str) -> None:
        self._line(text, "")

    def note(self, text: str) -> None:
        """Show a less important message, dimmed."""
        self._line(text, DIM)

    def error(self, text: str) -> None:
        self._line(text, RED)

    def show_legend(self, n_accepted: Mapping[str, int]) -> None:
        """Show each source in its color, with the number of its accepted tokens."""
        for source, n in n_accepted.items():
            self._line(f"  {source}: {n} accepted", self._colors.escape_of(source))

    def _line(self, text: str, style: str) -> None:
        self.end_answer()
        self._write(self._err, f"{self._styled(report.wrapped(text, self.columns), style)}\n")

    @property
    def columns(self) -> int | None:
        """The number of columns at which lines wrap; None: they do not wrap."""
        return None

    def _styled(self, text: str, style: str) -> str:
        shown = sanitize(text)
        return f"{style}{shown}{RESET}" if style and self._color_err else shown

    @staticmethod
    def _write(stream: TextIO, text: str) -> None:
        stream.write(text)
        stream.flush()


class JsonScreen(Screen):
    """Prints each answer as a JSON object."""

    def show_piece(self, piece: Piece) -> None:
        """Do nothing: `show_summary` writes the whole answer."""

    def end_answer(self, *, empty: bool = False) -> None:
        """Do nothing."""

    def show_summary(self, answer: ChatAnswer) -> None:
        self._write(self._out, json.dumps(report.record(answer)) + "\n")
