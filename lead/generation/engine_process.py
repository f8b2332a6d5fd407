"""An engine process, as the front sees it: started, talked to over a pipe, ended."""

import asyncio
import logging
import signal
from collections.abc import AsyncGenerator, Sequence
from typing import Self

from lead.engine.commands import Command
from lead.engine.events import Event, decode_event, encode_line
from lead.engine.load import Load
from shared.keeper import ConnectedChild
from shared.python_child import child_command, child_environment
from shared.sandbox import without_secrets

log = logging.getLogger("lead")

_STOP_SECONDS = 10.0
"""How long the engine may take for its last step before it is killed."""


class EngineProcess(ConnectedChild):
    """Lives from `start` to `end`."""

    _max_silence: float

    @classmethod
    async def start(
        cls, grammars: int, log_options: Sequence[str], max_silence: float, shared: Sequence[int] = ()
    ) -> Self:
        """Start one; raises OSError. max_silence: seconds after which its keeper kills it.

        grammars: a descriptor over which it has grammars followed (`shared.sandbox.Sandbox.share`). shared:
        others, which its `Load` names.
        """
        process = await cls.connected(
            lambda socket: child_command("lead.engine", str(socket), str(grammars), *log_options),
            [grammars, *shared],
            stop_seconds=_STOP_SECONDS,
            env=without_secrets(child_environment()),
        )
        process._max_silence = max_silence  # noqa: SLF001 - of this class
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

    def kill_silent(self) -> None:
        log.error(
            "the engine (pid %d) has shown no sign of life for %g s (--engine-timeout): it is killed",
            self.pid,
            self._max_silence,
        )
        super().kill_silent()

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
