"""The sandbox of the tokenizer processes, for asyncio."""

import asyncio
from typing import Any

from lead.tokenizer.jobs import HEADER, decode
from shared.sandbox import KILL, STATUS, Sandbox

_BEGIN_SECONDS = 60.0
"""Loading a vocabulary takes seconds, forking milliseconds. If a fork server needs longer than this, a signal
has stopped it, or the machine swaps.
"""

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class WorkerDiedError(Exception):
    """A worker ended in the middle of a job."""

    def __init__(self, status: int | None) -> None:
        """status: as in `Popen.returncode`; None if it is unknown, because the fork server has ended, too."""
        super().__init__(status)
        self.status = status


class Workers(Sandbox):
    """The fork server and its workers. Call `close` in a thread: it may take some seconds."""

    async def begin(self, kind: bytes) -> "Worker":
        """Start a worker for one kind of jobs of a `TokenizerProgram`.

        Raises OSError if the fork server has ended, or does not answer.
        """
        worker = Worker(*[await asyncio.open_connection(sock=each) for each in self.open(kind)])
        try:
            async with asyncio.timeout(_BEGIN_SECONDS):
                await worker.has_begun()
        except BaseException as error:
            if isinstance(error, TimeoutError):
                self.kill()
            worker.close()
            raise
        return worker


class Worker:
    """A connection to one tokenizer process."""

    def __init__(self, connection: _Streams, supervision: _Streams) -> None:
        """connection, supervision: the two ends of a `shared.sandbox.Task`."""
        self._answer, self._job = connection
        self._news, self._orders = supervision

    @property
    def has_ended(self) -> bool:
        """True if the worker accepts no more jobs: it has grown too large, or died."""
        return self._answer.at_eof() or self._answer.exception() is not None

    async def has_begun(self) -> None:
        """Wait until the worker is ready; raises ConnectionError."""
        if not await self._news.read(1):
            raise ConnectionError("the fork server has ended")

    async def ask(self, message: bytes) -> Any:
        """Return the answer to an encoded job; raises WorkerDiedError."""
        try:
            self._job.write(HEADER.pack(len(message)) + message)
            await self._job.drain()
            (n,) = HEADER.unpack(await self._answer.readexactly(HEADER.size))
            return decode(await self._answer.readexactly(n))
        except (OSError, asyncio.IncompleteReadError) as error:
            raise WorkerDiedError(await self._status()) from error

    async def _status(self) -> int | None:
        data = await self._news.read(STATUS.size)
        return STATUS.unpack(data)[0] if data else None

    def kill(self) -> None:
        self._orders.write(KILL)

    def close(self) -> None:
        """Close the connection to the worker, which then ends."""
        self._job.close()
        self._orders.close()
