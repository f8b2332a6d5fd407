"""An engine process, as the front sees it: started, talked to over a pipe, ended."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncGenerator, Sequence
from typing import Self

from lead.engine.commands import Command
from lead.engine.events import Event, decode_event, encode_line
from lead.engine.load import Load
from shared.keeper import Child
from shared.python_child import child_command, child_environment
from shared.sandbox import without_secrets

log = logging.getLogger("lead")

_STOP_SECONDS = 10.0
"""How long the engine may take for its last step before it is killed."""


class EngineProcess(Child):
    """Lives from `start` to `end`."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _max_silence: float

    @classmethod
    async def start(
        cls, grammars: int, log_options: Sequence[str], max_silence: float, shared: Sequence[int] = ()
    ) -> Self:
        """Start one; raises OSError. max_silence: seconds after which its keeper kills it.

        grammars: a descriptor over which it has grammars followed (`shared.sandbox.Sandbox.share`). shared:
        others, which its `Load` names.
        """
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as unused:
            unused.enter_context(ours)
            process = cls(
                child_command("lead.engine", str(theirs.fileno()), str(grammars), *log_options),
                [theirs.fileno(), grammars, *shared],
                stop_seconds=_STOP_SECONDS,
                env=without_secrets(child_environment()),
            )
            unused.pop_all()
        process._max_silence = max_silence
        process._reader, process._writer = await asyncio.open_connection(sock=ours)
        return process

    @property
    def n_unsent_bytes(self) -> int:
        """The size of the commands that the pipe has not taken yet."""
        return self._writer.transport.get_write_buffer_size()

    def send(self, command: Command | Load) -> None:
        """Does nothing if the process has ended."""
        if not self._writer.is_closing():  # uvloop's transports raise RuntimeError then
            self._writer.write(encode_line(command))

    async def events(self) -> AsyncGenerator[Event]:
        """All of them, until the process ends."""
        try:
            while True:
                yield decode_event(await _line(self._reader))
        except asyncio.IncompleteReadError:
            pass  # it has ended, perhaps in the middle of an event
        except OSError:
            pass  # reading from a killed process raises what a write to it has met: reset, or a broken pipe

    def tell_to_end(self) -> None:
        """After its step."""
        self._writer.close()

    async def end(self) -> int | None:
        status = await super().end()
        self._writer.transport.abort()  # a process that hangs in a driver keeps its end of the pipe open
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        return status

    def kill_silent(self) -> None:
        log.error(
            "the engine (pid %d) has shown no sign of life for %g s (--engine-timeout): it is killed",
            self.pid,
            self._max_silence,
        )
        super().kill_silent()
        self._writer.transport.abort()  # as above

    @property
    def outcome(self) -> str:
        """The way in which the process has ended."""
        status = self.returncode
        if status is None:
            return "nothing: it cannot be killed, and may hang in a driver"
        return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"


async def _line(reader: asyncio.StreamReader) -> bytes:
    """The next line, however long: an event with probabilities or an explanation may take megabytes."""
    parts: list[bytes] = []
    while True:
        try:
            return b"".join([*parts, await reader.readuntil()])
        except asyncio.LimitOverrunError as overrun:
            parts.append(await reader.readexactly(overrun.consumed))
