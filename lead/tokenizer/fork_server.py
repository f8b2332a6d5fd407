"""The front's side of the processes: starts the one that forks, and has it fork and end workers."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Self

from lead.tokenizer.forking import COMMAND, END, FORK, READY, REPLY
from lead.tokenizer.jobs import HEADER, Setup, decode, encode
from shared.sandbox import sandbox_environment

_STOP_SECONDS = 2.0
_REPLY_SECONDS = 20.0
"""Forking takes milliseconds: a process that does not reply for so long is stopped, or the machine swaps."""


class ForkServerGoneError(Exception):
    """The process that forks workers has ended."""


class WorkerDiedError(Exception):
    """A worker has ended in the middle of a job."""


class ForkServer:
    """Used as a context; after it, all workers have ended."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._one_at_a_time = asyncio.Lock()
        self._workers: set[Worker] = set()

    async def __aenter__(self) -> Self:
        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        with theirs:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "lead.tokenizer", str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                env=sandbox_environment(os.environ),
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._control.close()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self.process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
        for worker in self._workers:
            if self.process.returncode:  # else it has ended them
                worker.kill()
            worker.close()

    async def load(self) -> None:
        """Wait until the vocabulary is loaded; raises ForkServerGoneError."""
        async with self._one_at_a_time:
            with _translated():
                await asyncio.get_running_loop().sock_sendall(self._control, encode(self._setup))
            assert await self._read(len(READY)) == READY

    async def fork(self) -> "Worker":
        """A new worker; raises ForkServerGoneError."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                pid = await self._command(FORK, 0, [theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        reader, writer = await asyncio.open_connection(sock=ours)
        worker = Worker(pid, reader, writer)
        self._workers.add(worker)
        return worker

    async def end(self, worker: "Worker") -> int:
        """End a worker; returns its status as `Popen.returncode` does; raises ForkServerGoneError."""
        self._workers.discard(worker)
        worker.close()
        return await self._command(END, worker.pid)

    async def _command(self, command: bytes, pid: int, descriptors: Sequence[int] = ()) -> int:
        """The reply. After being cancelled between the two, only closing is allowed."""
        async with self._one_at_a_time:
            with _translated():
                socket.send_fds(self._control, [COMMAND.pack(command, pid)], descriptors)
                async with asyncio.timeout(_REPLY_SECONDS):
                    return int(REPLY.unpack(await self._read(REPLY.size))[0])

    async def _read(self, n: int) -> bytes:
        data = b""
        with _translated():
            while len(data) < n:
                more = await asyncio.get_running_loop().sock_recv(self._control, n - len(data))
                if not more:
                    raise ForkServerGoneError
                data += more
        return data


class Worker:
    """A forked process; it does one job at a time."""

    def __init__(self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self.has_ended = False
        """Whether it has said that it ends."""
        self._reader = reader
        self._writer = writer

    async def ask(self, message: bytes) -> Any:
        """The answer to an encoded job; raises WorkerDiedError."""
        try:
            self._writer.write(message)
            await self._writer.drain()
            self.has_ended, n = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            return decode(await self._reader.readexactly(n))
        except (OSError, asyncio.IncompleteReadError) as error:
            raise WorkerDiedError from error

    def close(self) -> None:
        """Close the connection, which ends a worker that is idle."""
        self._writer.close()

    def kill(self) -> None:
        """For a worker whose parent is gone. While its end of the socket is open, it has its process id."""
        if not self._reader.at_eof():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ForkServerGoneError from error
