"""Shows answers on a terminal: Markdown rendered as it arrives, colored by source, above a status line.

While tokens arrive, the last block (a paragraph, a list, code) is redrawn; blocks before it are final.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TextIO

from rich.console import Console
from rich.segment import Segment, Segments
from rich.text import Text

from chat.answer import ChatAnswer, Piece
from chat.attribution import AttributedText
from chat.markdown import THEME, Lines, last_block, render
from chat.render import Screen
from shared.terminal import sanitize

_DRAWINGS_PER_SECOND = 15
"""This rate looks smooth, and leaves the CPU to a lead on the same machine."""


_UP = "\x1b[{}A"
_ERASE_BELOW = "\x1b[J"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class TerminalLine(NamedTuple):
    """A line with its escape sequences, and its width in cells."""

    text: str
    n_cells: int


class LiveRegion:
    """Lines at the bottom of a terminal that are redrawn in place until they are final.

    Only changed lines are drawn. Rows that have scrolled off the screen cannot be redrawn and stay as they
    were. Terminals differ in the width of some characters. A line that is wider than computed is clipped, so
    that the count of rows stays right.
    """

    def __init__(self, stream: TextIO, size: Callable[[], tuple[int, int]]) -> None:
        """`size`: columns and rows of the terminal, called before each drawing."""
        self._stream = stream
        self._size = size
        self._drawn: list[TerminalLine] = []

    def draw(self, lines: Sequence[TerminalLine]) -> None:
        first = self._first_difference(lines)
        n_up = sum(map(self._n_rows, self._drawn[first:]))
        self._drawn[first:] = lines[first:]
        fresh = "".join(f"{line.text}\n" for line in lines[first:])
        up = _UP.format(n_up) if n_up else ""
        self._write(f"{_HIDE_CURSOR}{_NO_WRAP}{up}\r{_ERASE_BELOW}{fresh}{_WRAP}")

    def freeze(self) -> None:
        """Make the drawn lines final; later lines are drawn below them."""
        self._drawn.clear()
        self._write(SHOW_CURSOR)

    def _first_difference(self, lines: Sequence[TerminalLine]) -> int:
        """Return the index of the first line that must be drawn again and can still be reached."""
        first = self._first_reachable()
        while first < min(len(lines), len(self._drawn)) and lines[first] == self._drawn[first]:
            first += 1
        return first

    def _first_reachable(self) -> int:
        n_left = self._size()[1] - 1  # the cursor is below the last line
        for i in range(len(self._drawn) - 1, -1, -1):
            n_left -= self._n_rows(self._drawn[i])
            if n_left < 0:
                return i + 1
        return 0

    def _n_rows(self, line: TerminalLine) -> int:
        """Return the number of rows of a line: more than one if the terminal became narrower and broke it."""
        columns = max(self._size()[0], 1)
        return max(-(-line.n_cells // columns), 1)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


_BLANK = TerminalLine("", 0)


def terminal_size() -> tuple[int, int]:
    # shutil.get_terminal_size prefers COLUMNS, which is not updated when the window is resized.
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return 80, 24
    return columns or 80, rows or 24


class TerminalScreen(Screen):
    """Draws answers on a terminal while they arrive."""

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        environment: Mapping[str, str],
        *,
        status: Callable[[ChatAnswer, int], str],
        with_summary: bool = False,
        size: Callable[[], tuple[int, int]] = terminal_size,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`status` formats an answer's progress for a number of columns; `size` gives columns and rows."""
        super().__init__(out, err, environment, with_summary=with_summary)
        self._console = Console(
            file=out,
            force_terminal=True,
            no_color=not self._color_out,
            legacy_windows=False,
            highlight=False,
            theme=THEME,
            _environ=environment,
        )
        self._status = status
        self._size = size
        self._clock = clock
        self._live = LiveRegion(out, size)
        self._answer: ChatAnswer | None = None
        self._block = AttributedText()  # the last block, which may still change
        self._reasoning = ""
        self._gap: list[TerminalLine] = []  # the empty line above the answer
        self._next_drawing = 0.0
        self._is_below_answer = False

    def begin_answer(self, answer: ChatAnswer, *, shown: bool = True) -> None:
        super().begin_answer(answer, shown=shown)
        self._is_below_answer = False
        self._answer = answer
        self._block = AttributedText()
        self._reasoning = ""
        self._gap = [_BLANK]
        self._draw()
        self._next_drawing = 0.0  # the first token is drawn at once

    def show_piece(self, piece: Piece) -> None:
        """Show a piece of an answer in its source's color, or dim if it is reasoning."""
        if self._is_shown and piece.is_reasoning:
            self._reasoning += piece.text
        elif self._is_shown:
            self._end_thought()
            self._block.append(piece.text, piece.source)
        if not piece.more and self._clock() >= self._next_drawing:
            self._draw()

    def end_answer(self, *, empty: bool = False) -> None:
        """Draw the answer for the last time; does nothing if it has already ended."""
        del empty
        if self._answer is None:
            return
        self._answer = None
        self._freeze_blocks()
        lines = self._open_lines()
        self._is_below_answer = bool(lines) or not self._gap
        self._draw_for_good(lines)

    def show_summary(self, answer: ChatAnswer) -> None:
        if self._sums_up:
            self._write(self._err, "\n")
            self._is_below_answer = False
            super().show_summary(answer)
            self._write(self._err, "\n")

    def show_answer(self, text: str) -> None:
        block = AttributedText()
        block.append(text, None)
        self._draw_for_good([_BLANK, *self._rendered(block), _BLANK])

    @property
    def columns(self) -> int:
        """The width to write in: one column less than the terminal's, as some terminals draw wide characters
        wider.
        """
        return max(self._size()[0] - 1, 1)

    def _line(self, text: str, style: str) -> None:
        self.end_answer()
        if self._is_below_answer:
            self._write(self._err, "\n")
        self._is_below_answer = False
        super()._line(text, style)

    def _draw(self) -> None:
        self._freeze_blocks()
        lines = self._open_lines()
        self._live.draw([*self._gap, *lines, *[_BLANK][: len(lines)], *self._status_lines()])
        self._next_drawing = self._clock() + 1 / _DRAWINGS_PER_SECOND

    def _freeze_blocks(self) -> None:
        """Draw the final form of all blocks except the last block."""
        n_final = last_block(self._block.text)
        if n_final:
            self._draw_for_good([*self._rendered(self._block.take(n_final)), _BLANK])

    def _end_thought(self) -> None:
        if self._reasoning:
            self._draw_for_good([*self._thought_lines(), _BLANK])
            self._reasoning = ""

    def _draw_for_good(self, lines: list[TerminalLine]) -> None:
        self._live.draw([*self._gap, *lines] if lines else [])
        self._live.freeze()
        self._gap = []

    def _open_lines(self) -> list[TerminalLine]:
        return [*self._thought_lines(), *self._rendered(self._block)]

    def _rendered(self, block: AttributedText) -> list[TerminalLine]:
        self._console.width = self.columns
        return self._lines(render(block, self._console, self._colors))

    def _thought_lines(self) -> list[TerminalLine]:
        if not self._reasoning:
            return []
        text = Text(sanitize(self._reasoning.strip()), style="dim italic")
        return self._lines(self._console.render_lines(text, self._console.options.update_width(self.columns)))

    def _status_lines(self) -> list[TerminalLine]:
        assert self._answer
        words = sanitize(self._status(self._answer, self.columns))
        text = Text(words, style="dim", no_wrap=True, overflow="ellipsis")
        options = self._console.options.update_width(self.columns)
        return self._lines(self._console.render_lines(text, options, pad=False))

    def _lines(self, lines: Lines) -> list[TerminalLine]:
        return [TerminalLine(self._escaped(line), Segment.get_line_length(line)) for line in lines]

    def _escaped(self, line: list[Segment]) -> str:
        with self._console.capture() as capture:
            self._console.print(Segments(line), end="", crop=False)
        return capture.get()
