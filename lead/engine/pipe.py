"""The engine's end of the socket pair to the front process: commands in, events out.

Bounded by the kernel's socket buffers: the front holds back drafts that do not fit, and `send` blocks until
the front reads.

The front wakes up for what the engine sends. On a CPU whose cores all compute that interrupts a step, and
costs more than what the front does with a token. So the tokens of short steps go together, and those that
nobody reads yet.
"""

import select
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from lead.engine.commands import Cancel, Command, SetBacks, Submit, decode_command
from lead.engine.events import Committed, Event, Failed, Finished, encode_line
from lead.engine.new_pieces import NewPieces

_HOLD_SECONDS = 1 / 20
"""From one message to the next, at most, while steps are shorter: nobody reads faster. SmolLM2 on two cores,
8 ms a token, becomes 5 % faster."""
_SENDS_PER_SECOND = 320
"""To the clients of all streams, at most: from seventeen streams on, tokens wait longer. A send is half of
what the front does for a stream."""
_HOLD_UNREAD_SECONDS = 1 / 4
"""As `_HOLD_SECONDS`, for answers that are not streamed. Not until their ends: the page shows how far they
are, and what the front does not have yet is generated again if the engine process dies."""


def low_numbered(descriptor: int) -> socket.socket:
    """The socket of an inherited descriptor under the lowest free number, which a new process has below 10.

    Only select() waits for less than a millisecond, as the wait for drafts does (poll and epoll round up to
    one), and select() fails from 1,024 on. The front may have more descriptors than that open.
    """
    inherited = socket.socket(fileno=descriptor)
    with inherited:
        return inherited.dup()


class Pipe(ABC):
    """Holds tokens back for a moment, unless they are the first of an answer, or a back waits for them.

    How messages pass is left to subclasses. `open` turns False when the front is gone.
    """

    open: bool

    def __init__(self) -> None:
        self.pieces: NewPieces | None = None
        """What the front does not know of tokens yet."""
        self._has_backs = False
        self._unread: set[str] = set()
        self._hold_seconds = _HOLD_UNREAD_SECONDS
        self._held: list[Event] = []
        self._growing: dict[str, Committed] = {}  # of those, by sequence, what takes its next tokens
        self._is_urgent = False  # what is held
        self._begun: set[str] = set()
        self._asked_at = self._sent_at = float("-inf")

    @abstractmethod
    def send(self, *events: Event) -> None:
        """Hand events to the front, together: it wakes up once."""

    @abstractmethod
    def drain(self, wait: float | None) -> list[Command]:
        """All commands that have arrived; if none has, wait for one (or for the front's end).

        `wait` is the most seconds to do so; None: for ever.
        """

    def pass_on(self, events: Sequence[Event], now: float, *, at_once: bool = False) -> None:
        """Send all that is held and `events` at `now` (seconds), or nothing yet.

        It will be called again after about as long as has passed since the last time.
        """
        self.hold(events)
        next_time, self._asked_at = 2 * now - self._asked_at, now
        is_late = next_time - self._sent_at > self._hold_seconds
        if not (at_once or self._has_backs or self._is_urgent or is_late):
            return
        sent, self._held, self._is_urgent = self._held, [], False
        self._growing.clear()
        if sent:
            self._sent_at, self._hold_seconds = now, _HOLD_UNREAD_SECONDS
            self.send(*(self.pieces.of(sent) if self.pieces else ()), *sent)

    def hold(self, events: Sequence[Event]) -> None:
        """They go with the next ones. Steps of a sequence without drafts become one event."""
        for event in events:
            self._is_urgent |= self._cannot_wait(event)
            if not isinstance(event, Committed):
                self._held.append(event)
                continue
            if event.sequence not in self._unread:
                self._hold_seconds = max(_HOLD_SECONDS, len(self._begun) / _SENDS_PER_SECOND)
            if event.is_plain and (growing := self._growing.get(event.sequence)):
                growing.tokens.extend(event.tokens)
                continue
            self._held.append(event)
            self._growing.pop(event.sequence, None)
            if event.is_plain:
                self._growing[event.sequence] = event

    def on_applied(self, command: Command) -> None:
        """The engine follows `command` from now on. Of a sequence that it cancels nothing more is sent."""
        match command:
            case Submit(unread=True):
                self._unread.add(command.sequence)
            case SetBacks():
                self._has_backs = bool(command.names)
            case Cancel():
                name = command.sequence
                self._held = [event for event in self._held if getattr(event, "sequence", None) != name]
                self._growing.pop(name, None)
                self._forget(name)

    def _forget(self, sequence: str) -> None:
        self._begun.discard(sequence)
        self._unread.discard(sequence)

    def _cannot_wait(self, event: Event) -> bool:
        match event:
            case Committed():
                is_first = event.sequence not in self._begun
                self._begun.add(event.sequence)
                return is_first
            case Finished() | Failed():
                self._forget(event.sequence)
        return True


class EnginePipe(Pipe):
    """Blocking writes, non-blocking or blocking reads.

    Any thread may send; one reads.
    """

    def __init__(self, connection: socket.socket) -> None:
        """`connection` needs a descriptor below 1,024: see `low_numbered`."""
        super().__init__()
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
        """The first line, which is no command yet; waits for it. Empty: the front is gone."""
        while self.open and b"\n" not in self._buffer:
            select.select([self._socket], [], [])
            self._read_available()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return bytes(line) if self.open else b""

    @property
    def readable(self) -> bool:
        """Whether a command is waiting, or the front is gone."""
        return bool(self._poll.poll(0))

    def has_been_read(self) -> bool:
        """Whether somebody waits for commands, or has looked for some since the last call."""
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
