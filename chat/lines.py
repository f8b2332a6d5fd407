"""Where the lines come from: the seam between the loop and a keyboard or a pipe."""

from typing import Protocol, TextIO


class Lines(Protocol):
    def read(self) -> str:
        """The next line, without its end. Raises EOFError when there is none, KeyboardInterrupt on Ctrl-C."""


class PipedLines:
    """The lines of a stream that is not a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def read(self) -> str:
        line = self._stream.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")
