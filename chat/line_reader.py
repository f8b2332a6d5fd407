"""Reads input lines from a keyboard or a pipe, and switches off the terminal's echo while an answer
streams.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO


class LineReader(Protocol):
    def read(self, draft: str = "") -> str:
        """Return the next line, without its line end. draft: text that a prompt shows for editing.

        Raises EOFError at the end of the input, KeyboardInterrupt on Ctrl-C.
        """


class PipeReader:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def read(self, draft: str = "") -> str:
        del draft
        line = self._stream.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")


@contextmanager
def without_echo(stdin: TextIO) -> Iterator[None]:
    """Switch off echo and line buffering; Ctrl-C still interrupts."""
    if sys.platform == "win32" or not stdin.isatty():
        yield
        return
    import termios  # noqa: PLC0415  (not on Windows)
    import tty  # noqa: PLC0415

    before = termios.tcgetattr(stdin)
    tty.setcbreak(stdin, termios.TCSANOW)
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSANOW, before)
