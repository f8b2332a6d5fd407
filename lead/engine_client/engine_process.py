"""The front's handle on an engine process."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Self

from lead.engine.commands import Command
from lead.engine.events import Event, decode_event, encode_line
from lead.engine.load import Load
from shared.keeper import ConnectedChild
from shared.python_child import child_command, child_environment
from shared.sandbox import without_secrets

_STOP_SECONDS = 10.0
"""The time for the engine's last step, after which it is killed."""


class EngineProcess(ConnectedChild):
    """A running engine process, connected by a pipe. It exists from `start` to `end`."""

    @classmethod
    async def start(cls, grammars: int, log_options: Sequence[str], shared: Sequence[int] = ()) -> Self:
        """Start an engine process; raises OSError.

        grammars: the file descriptor of the fork server for grammars (`shared.sandbox.Sandbox.share`).
        shared: further descriptors to inherit, which `Load` names.
        """
        return await cls.connected(
            lambda socket: child_command("lead.engine", str(socket), str(grammars), *log_options),
            [grammars, *shared],
            stop_seconds=_STOP_SECONDS,
            env=without_secrets(child_environment()),
        )

    @property
    def n_unsent_bytes(self) -> int:
        """The number of bytes of commands that the pipe has not taken yet."""
        return self._writer.transport.get_write_buffer_size()

    def send(self, command: Command | Load) -> None:
        """Send a command; does nothing if the process has ended."""
        if not self._writer.is_closing():  # uvloop's transports raise RuntimeError then
            self._writer.write(encode_line(command))

    async def events(self) -> AsyncGenerator[Event]:
        """Yield all events of the process until it ends."""
        try:
            while True:
                yield decode_event(await _line(self._reader))
        except asyncio.IncompleteReadError:
            pass  # it has ended, perhaps in the middle of an event
        except OSError:
            pass  # after a kill, reading raises the error of an earlier write: reset, or broken pipe


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Return the next line, however long: an event with probabilities or a report may take megabytes."""
    parts: list[bytes] = []
    while True:
        try:
            return b"".join([*parts, await reader.readuntil()])
        except asyncio.LimitOverrunError as overrun:
            parts.append(await reader.readexactly(overrun.consumed))
