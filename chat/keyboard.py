"""Keys typed while an answer streams are not echoed, but kept for the next prompt."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def without_echo(stdin: TextIO) -> Iterator[None]:
    """Switch off echo and line buffering; Ctrl-C still interrupts."""
    if sys.platform == "win32" or not stdin.isatty():
        yield
        return
    import termios  # noqa: PLC0415  (not on Windows)

    before = termios.tcgetattr(stdin)
    changed = termios.tcgetattr(stdin)
    changed[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(stdin, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSANOW, before)
