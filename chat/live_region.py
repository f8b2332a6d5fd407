"""Lines at the bottom of a terminal that are redrawn in place until they are final.

Only what changed is drawn. Rows that have left the screen cannot be reached and stay as they were. A line
that is wider than it seemed (terminals differ in the width of some characters) is clipped, so that the rows
are always counted right.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TextIO

_UP = "\x1b[{}A"
_ERASE_BELOW = "\x1b[J"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class TerminalLine(NamedTuple):
    """A line with its escape sequences, and its width in cells."""

    text: str
    n_cells: int


class LiveRegion:
    def __init__(self, stream: TextIO, size: Callable[[], tuple[int, int]]) -> None:
        """`size`: columns and rows of the terminal, called before each drawing."""
        self._stream = stream
        self._size = size
        self._drawn: list[TerminalLine] = []

    def draw(self, lines: Sequence[TerminalLine]) -> None:
        """Replace the lines drawn before by `lines`."""
        first = self._first_difference(lines)
        n_up = sum(map(self._n_rows, self._drawn[first:]))
        self._drawn[first:] = lines[first:]
        fresh = "".join(f"{line.text}\n" for line in lines[first:])
        up = _UP.format(n_up) if n_up else ""
        self._write(f"{_HIDE_CURSOR}{_NO_WRAP}{up}\r{_ERASE_BELOW}{fresh}{_WRAP}")

    def freeze(self) -> None:
        """Make what is drawn final; what is drawn next goes below it."""
        self._drawn.clear()
        self._write(SHOW_CURSOR)

    def _first_difference(self, lines: Sequence[TerminalLine]) -> int:
        """The first line that has to be drawn again, of those that can be reached."""
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
        """More than one when the terminal has become narrower and broke the line."""
        columns = max(self._size()[0], 1)
        return max(-(-line.n_cells // columns), 1)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
