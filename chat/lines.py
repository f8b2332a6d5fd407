"""Where the lines come from: the seam between the loop and a keyboard or a pipe."""

from typing import Protocol, TextIO


class Lines(Protocol):
    def read(self, draft: str = "") -> str:
        """The next line, without its end; a person finds `draft` in it already.

        Raises EOFError when there is none, KeyboardInterrupt on Ctrl-C.
        """


class PipedLines:
    """The lines of a stream that is not a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def read(self, draft: str = "") -> str:
        del draft
        line = self._stream.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")
