"""The engine's end of the socket pair to the front process: commands in, events out.

It holds as much as the kernel's socket buffers: the front holds back drafts that do not fit, and `send`
blocks until the front reads.
"""

import select
import socket
import threading
import time

from lead.engine.commands import Command, decode_command
from lead.engine.events import Event, encode_line


def low_numbered(descriptor: int) -> socket.socket:
    """Return the socket of an inherited descriptor, moved to the lowest free number (below 10 in a new
    process).

    The engine waits for drafts for less than a millisecond, which only select() can do: poll and epoll round
    up to a millisecond. But select() fails for descriptors from 1,024 on, which the front may reach.
    """
    inherited = socket.socket(fileno=descriptor)
    with inherited:
        return inherited.dup()


class EnginePipe:
    """The pipe, with blocking writes and blocking or non-blocking reads. Any thread may send; only
    one reads.
    """

    def __init__(self, connection: socket.socket) -> None:
        """`connection` must have a descriptor below 1,024: see `low_numbered`."""
        self._socket = connection
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._buffer = bytearray()
        self._sending = threading.Lock()
        self._is_draining = False
        self._has_drained = False
        self.open = True

    def send(self, *events: Event) -> None:
        try:
            with self._sending:
                self._socket.sendall(b"".join(map(encode_line, events)))
        except (BrokenPipeError, ConnectionResetError):
            self.open = False

    def read_line(self) -> bytes:
        """Return the first line, which is not a command; blocks. Empty: the front has closed the pipe."""
        while self.open and b"\n" not in self._buffer:
            select.select([self._socket], [], [])
            self._read_available()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return bytes(line) if self.open else b""

    @property
    def readable(self) -> bool:
        """True if a command has arrived, or the front has closed the pipe."""
        return bool(self._poll.poll(0))

    def has_been_read(self) -> bool:
        """Return whether the engine is waiting for commands, or has read some since the last call."""
        has = self._is_draining or self._has_drained
        self._has_drained = False
        return has

    def drain(self, wait: float | None) -> list[Command]:
        self._is_draining = self._has_drained = True
        commands = self._drain(wait)
        self._is_draining = False
        return commands

    def _drain(self, wait: float | None) -> list[Command]:
        self._read_available()
        commands = self._take_lines()
        deadline = None if wait is None else time.monotonic() + wait
        while self.open and not commands:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                break
            select.select([self._socket], [], [], left)
            self._read_available()
            commands = self._take_lines()
        return commands

    def _read_available(self) -> None:
        while self.open and self.readable:
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            self.open = bool(data)
            self._buffer += data

    def _take_lines(self) -> list[Command]:
        end = self._buffer.rfind(b"\n") + 1
        if not end:
            return []
        lines = bytes(self._buffer[:end]).splitlines()
        del self._buffer[:end]
        return [decode_command(line) for line in lines]
