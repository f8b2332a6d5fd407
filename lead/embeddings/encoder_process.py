"""An encoder process, seen from the front."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Self

from lead.tokenizer.jobs import HEADER, decode, encode
from shared.keeper import ConnectedChild
from shared.python_child import child_command, child_environment
from shared.sandbox import NO_GPU, without_secrets

_STOP_SECONDS = 5.0
"""The time that the process may take for its batch before it is killed."""


class EncoderProcess(ConnectedChild):
    """A running process. Exists from `start` to `end`."""

    @classmethod
    async def start(cls, log_options: Sequence[str], *, needs_gpu: bool) -> Self:
        """Start the process. Raises OSError."""
        return await cls.connected(
            lambda socket: child_command("lead.embeddings.encoder_program", str(socket), *log_options),
            stop_seconds=_STOP_SECONDS,
            env=without_secrets(child_environment()) | ({} if needs_gpu else NO_GPU),
        )

    def send(self, message: object) -> None:
        """Send a message; does nothing if the process has ended."""
        if not self._writer.is_closing():
            data = encode(message)
            self._writer.write(HEADER.pack(len(data)) + data)

    async def messages(self) -> AsyncGenerator[Any]:
        """Yield all messages of the process until it ends."""
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                (n_bytes,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
                yield decode(await self._reader.readexactly(n_bytes))
