"""An engine process, seen from the front: started, connected by a pipe, ended."""

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
"""How long the engine may take for its last step before it is killed."""


class EngineProcess(ConnectedChild):
    """A running process. Exists from `start` to `end`."""

    @classmethod
    async def start(cls, grammars: int, log_options: Sequence[str], shared: Sequence[int] = ()) -> Self:
        """Start one; raises OSError.

        grammars: a descriptor over which it has grammars followed (`shared.sandbox.Sandbox.share`). shared:
        others, which its `Load` names.
        """
        return await cls.connected(
            lambda socket: child_command("lead.engine", str(socket), str(grammars), *log_options),
            [grammars, *shared],
            stop_seconds=_STOP_SECONDS,
            env=without_secrets(child_environment()),
        )

    @property
    def n_unsent_bytes(self) -> int:
        """The size of the commands that the pipe has not taken yet."""
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
            pass  # reading from a killed process raises what a write to it has met: reset, or a broken pipe


async def _line(reader: asyncio.StreamReader) -> bytes:
    """The next line, however long: an event with probabilities or an explanation may take megabytes."""
    parts: list[bytes] = []
    while True:
        try:
            return b"".join([*parts, await reader.readuntil()])
        except asyncio.LimitOverrunError as overrun:
            parts.append(await reader.readexactly(overrun.consumed))
