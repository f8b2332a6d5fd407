"""One encoder process, as the front sees it."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Self

from lead.tokenizer.jobs import HEADER, decode, encode
from shared.keeper import Child
from shared.python_child import child_command, child_environment
from shared.sandbox import NO_GPU, without_secrets

_STOP_SECONDS = 5.0
"""How long it may take for its batch before it is killed."""


class EncoderProcess(Child):
    """Lives from `start` to `end`."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    @classmethod
    async def start(cls, log_options: Sequence[str], *, needs_gpu: bool) -> Self:
        """Raises OSError."""
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as unused:
            unused.enter_context(ours)
            process = cls(
                child_command("lead.embeddings.encoder_program", str(theirs.fileno()), *log_options),
                [theirs.fileno()],
                stop_seconds=_STOP_SECONDS,
                env=without_secrets(child_environment()) | ({} if needs_gpu else NO_GPU),
            )
            unused.pop_all()
        process._reader, process._writer = await asyncio.open_connection(sock=ours)
        return process

    def send(self, message: object) -> None:
        """Does nothing if the process has ended."""
        if not self._writer.is_closing():
            data = encode(message)
            self._writer.write(HEADER.pack(len(data)) + data)

    async def messages(self) -> AsyncGenerator[Any]:
        """All of them, until the process ends."""
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                (n_bytes,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
                yield decode(await self._reader.readexactly(n_bytes))

    def tell_to_end(self) -> None:
        """After its batch."""
        self._writer.close()

    async def end(self) -> int | None:
        status = await super().end()
        self._writer.transport.abort()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        return status

    def kill_silent(self) -> None:
        super().kill_silent()
        self._writer.transport.abort()
