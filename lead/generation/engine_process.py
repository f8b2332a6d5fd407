"""One engine process, as the front sees it: started, talked to over a pipe, watched, reaped."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Self

from lead.engine.commands import Command
from lead.engine.events import Event, decode_event, encode_line
from lead.engine.load import Load
from shared.lifeline import lifeline
from shared.python_child import child_command, child_environment
from shared.sandbox import without_secrets

log = logging.getLogger("lead")

_STOP_SECONDS = 10.0
"""How long the engine may take for its last step before it is killed."""
_KILL_SECONDS = 10.0
"""How long a killed process may take to end: it releases its memory."""

_TICKS = 10
"""Silence is counted in ticks, not by the clock: while the front is stopped, too (Ctrl-Z), none pass."""
_MOST_START_SECONDS = 60.0
"""A process that imports its modules gives no sign of life yet."""


class Watchdog:
    """`wait_for_silence` returns when `heard` has not been called for `seconds`."""

    def __init__(self, seconds: float) -> None:
        """0: never."""
        self._seconds = seconds
        self._ever_heard = False
        self._n_silent = 0

    def heard(self) -> None:
        """A sign of life."""
        self._ever_heard = True
        self._n_silent = 0

    async def wait_for_silence(self) -> None:
        """Returns after `seconds` of silence; the first sign of life may take longer."""
        if not self._seconds:
            await asyncio.Event().wait()
        while self._n_silent < self._most_silent_ticks:
            await asyncio.sleep(self._seconds / _TICKS)
            self._n_silent += 1

    @property
    def _most_silent_ticks(self) -> float:
        return _TICKS if self._ever_heard else _TICKS * max(1.0, _MOST_START_SECONDS / self._seconds)


class EngineProcess:
    """Lives from `start` to `reap`."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        most_silence: float,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._most_silence = most_silence
        self._watchdog = Watchdog(most_silence)

    @classmethod
    async def start(cls, grammars: int, log_options: Sequence[str], most_silence: float) -> Self:
        """Start one; raises OSError. It is killed after `most_silence` seconds without an event; 0: never.

        grammars: a descriptor over which it has grammars followed (`shared.sandbox.Sandbox.share`).
        """
        ours, theirs = socket.socketpair()
        with theirs:
            command = child_command("lead.engine", str(theirs.fileno()), str(grammars), *log_options)
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    pass_fds=[theirs.fileno(), grammars, lifeline()],
                    stdin=asyncio.subprocess.DEVNULL,
                    env=without_secrets(child_environment()),
                )
            except BaseException:
                ours.close()
                raise
        return cls(process, *await asyncio.open_connection(sock=ours), most_silence)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def n_unsent_bytes(self) -> int:
        """The size of the commands that the pipe has not taken yet."""
        return self._writer.transport.get_write_buffer_size()

    def send(self, command: Command | Load) -> None:
        """Does nothing if the process has ended."""
        if not self._writer.is_closing():  # uvloop's transports raise RuntimeError then
            self._writer.write(encode_line(command))

    async def events(self) -> AsyncGenerator[Event]:
        """All of them, until the process ends or is killed because there are none."""
        watching = asyncio.ensure_future(self._kill_when_silent())
        try:
            while True:
                line = await _line(self._reader)
                self._watchdog.heard()
                yield decode_event(line)
        except asyncio.IncompleteReadError:
            pass  # it has ended, perhaps in the middle of an event
        except OSError:
            pass  # reading from a killed process raises what a write to it has met: reset, or a broken pipe
        finally:
            watching.cancel()

    def close(self) -> None:
        """Ask it to finish its step and exit."""
        self._writer.close()

    async def wait_while_pending(self, work: asyncio.Future[Any]) -> None:
        """Returns when `work` is done, or this process has ended before; raises what `work` has raised."""
        ended = asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait({ended, work}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        if work.done():
            work.result()

    async def reap(self) -> str:
        """Wait until it has ended, and kill it if that takes too long; returns how it ended."""
        self.close()
        if not await self._ends_within(_STOP_SECONDS):
            self._kill()
            if not await self._ends_within(_KILL_SECONDS):
                return "nothing: it cannot be killed, and may hang in a driver"
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        code = self._process.returncode or 0
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"

    async def _ends_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()
        return self._process.returncode is not None

    async def _kill_when_silent(self) -> None:
        await self._watchdog.wait_for_silence()
        log.error(
            "the engine (pid %d) has shown no sign of life for %g s (--engine-timeout): it is killed",
            self.pid,
            self._most_silence,
        )
        self._kill()

    def _kill(self) -> None:
        self._process.kill()
        self._writer.transport.abort()  # a process that hangs in a driver keeps its end of the pipe open


async def _line(reader: asyncio.StreamReader) -> bytes:
    """The next line, however long: an event with probabilities or an explanation may take megabytes."""
    parts: list[bytes] = []
    while True:
        try:
            return b"".join([*parts, await reader.readuntil()])
        except asyncio.LimitOverrunError as overrun:
            parts.append(await reader.readexactly(overrun.consumed))
