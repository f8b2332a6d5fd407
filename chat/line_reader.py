"""Input lines: the seam between the loop and a keyboard or a pipe."""

from typing import Protocol, TextIO


class LineReader(Protocol):
    def read(self, draft: str = "") -> str:
        """The next line, without its end; at a prompt it begins with `draft`, to be edited.


        Raises EOFError at the end of the input, KeyboardInterrupt on Ctrl-C.
        """


class PipeReader:
    """The lines of a stream that is not a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def read(self, draft: str = "") -> str:
        del draft
        line = self._stream.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")
