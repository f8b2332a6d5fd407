"""Writes generated text to a terminal that also shows the log, so that neither cuts a line of the other."""

import codecs
import contextlib
import os
import queue
import select
import sys
import threading
from collections.abc import Iterator
from enum import Enum
from typing import Final, TextIO

_MAX_WAITING: Final = 4096
"""The maximum number of pieces that wait for a stopped terminal; further pieces of text are dropped."""
_MAX_HELD: Final = 200
"""The maximum number of pieces of the log that wait for the end of a line of text."""
_PAUSE_SECONDS: Final = 3.0
"""After this time an unfinished line of text is broken for the log, which may say why nothing follows."""
_END_SECONDS: Final = 1.0
"""The time limit for unwritten text when the program ends: the terminal may be stopped."""
_STDERR: Final = 2
_CHUNK_BYTES: Final = 1 << 16


class _Column(Enum):
    """The kind of output in the line with the cursor."""

    NOTHING = 0
    TEXT = 1
    LOG = 2


class LineOrder:
    """The order of text and log: the log waits while a line of text is unfinished.

    Writes nothing: each method returns the text to write now.
    """

    def __init__(self) -> None:
        self._column = _Column.NOTHING
        self._held: list[str] = []

    @property
    def holds_log(self) -> bool:
        """True if a part of the log waits."""
        return bool(self._held)

    def text(self, piece: str) -> str:
        """Add a piece of text; a line break in it releases the waiting log."""
        lines, line_break, rest = piece.rpartition("\n")
        written = ""
        if line_break:
            written = self._after_log() + lines + line_break
            self._column = _Column.NOTHING
            written += self.release()
        if rest:
            written += self._after_log() + rest
            self._column = _Column.TEXT
        return written

    def log(self, piece: str) -> str:
        """Add a piece of the log, which may end in the middle of a line."""
        if self._column is _Column.TEXT:
            self._held.append(piece)
            return self.release() if len(self._held) > _MAX_HELD else ""
        self._column = _Column.NOTHING if piece.endswith("\n") else _Column.LOG
        return piece

    def release(self) -> str:
        """Return the waiting log, after a line break if a line of text is unfinished."""
        if not self._held:
            return ""
        begin = "\n" if self._column is _Column.TEXT else ""
        self._column = _Column.NOTHING
        held, self._held = "".join(self._held), []
        return begin + self.log(held)

    def _after_log(self) -> str:
        """Return a line break if the last piece of the log did not end its line, as with a progress bar."""
        return "\n" if self._column is _Column.LOG else ""


class TerminalWriter:
    """Writes in a thread: a terminal stopped with Ctrl-S blocks its writer but must not block the lead."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self._order = LineOrder()
        self._queue: queue.Queue[tuple[bool, str] | threading.Event] = queue.Queue(_MAX_WAITING)
        threading.Thread(target=self._run, name="printer", daemon=True).start()

    def put(self, text: str) -> None:
        """Write a piece of text soon, or drop it if too much waits."""
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait((False, text))

    def put_log(self, text: str) -> None:
        """Write a piece of the log soon. Blocks while too much waits."""
        self._queue.put((True, text))

    def drain(self) -> None:
        """Wait until all has been written, at most _END_SECONDS."""
        written = threading.Event()
        with contextlib.suppress(queue.Full):
            self._queue.put(written, timeout=_END_SECONDS)
            written.wait(_END_SECONDS)

    def _run(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=_PAUSE_SECONDS if self._order.holds_log else None)
            except queue.Empty:
                self._write(self._order.release())
                continue
            if isinstance(item, threading.Event):
                self._write(self._order.release())
                item.set()
            else:
                is_log, piece = item
                self._write(self._order.log(piece) if is_log else self._order.text(piece))

    def _write(self, text: str) -> None:
        encoding = self.out.encoding or "utf-8"
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone, and the lead goes on
            self.out.write(text.encode(encoding, "replace").decode(encoding))
            self.out.flush()


@contextlib.contextmanager
def stderr_through(writer: TerminalWriter) -> Iterator[None]:
    """Write the stderr of this process and its children through `writer` within this context.

    The children must be started, and must end, within the context.
    """
    terminal = os.dup(_STDERR)
    reading, writing = os.pipe()
    until, ended = os.pipe()
    os.dup2(writing, _STDERR)
    os.close(writing)
    relay = threading.Thread(target=_relay, args=(reading, until, writer), name="log", daemon=True)
    relay.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, _STDERR)
        os.close(terminal)
        os.close(ended)
        relay.join(_END_SECONDS)
        writer.drain()


def _relay(reading: int, until: int, writer: TerminalWriter) -> None:
    """Pass on the log from `reading`; end when `until` has been closed and all has been read."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        ready, _, _ = select.select([reading, until], [], [])
        if reading not in ready:
            break
        if not (data := os.read(reading, _CHUNK_BYTES)):
            break
        writer.put_log(decoder.decode(data))
    os.close(reading)
    os.close(until)


def shares_terminal(out: TextIO, log: TextIO) -> bool:
    """Return whether `out` and `log` are the same terminal, and `stderr_through` works on this system."""
    if sys.platform == "win32":
        return False
    try:
        return (
            out.isatty() and log.isatty() and os.fstat(out.fileno()).st_rdev == os.fstat(log.fileno()).st_rdev
        )
    except (OSError, ValueError):  # no files
        return False
