"""Children under asyncio: waited for, ended, and kept as a `Supervisor` says."""

import asyncio
import concurrent.futures
import contextlib
import logging
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, Self, TypeVar

from shared.python_child import KILL_SECONDS, ChildProcess
from shared.supervisor import ChildAction, Supervisor

log = logging.getLogger("lead")

R = TypeVar("R")

_MIN_WAIT_SECONDS = 0.01
"""Between two looks at what there is to do."""


def in_thread(call: Callable[..., R], *arguments: Any) -> "asyncio.Future[R]":
    """Run `call` in a thread of its own: this process can end without it."""
    found: concurrent.futures.Future[R] = concurrent.futures.Future()
    found.set_running_or_notify_cancel()

    def work() -> None:
        try:
            found.set_result(call(*arguments))
        except Exception as error:  # noqa: BLE001 - for whoever waits
            found.set_exception(error)

    threading.Thread(target=work, name="child", daemon=True).start()
    return asyncio.wrap_future(found)


class Child(ChildProcess):
    """Under asyncio. `ended` is done, with its status, when it has."""

    def __init__(
        self, command: Sequence[str], descriptors: Iterable[int] = (), *, stop_seconds: float, **options: Any
    ) -> None:
        """stop_seconds: how long it may take to end before it is killed. The rest as in `ChildProcess`."""
        super().__init__(command, descriptors, **options)
        self._stop_seconds = stop_seconds
        try:
            self.ended: asyncio.Future[Any] = in_thread(self.wait)
        except RuntimeError as error:  # there are too many threads
            self.end_within(0.0)
            raise OSError(str(error)) from error

    async def end(self) -> int | None:
        """Tell it to end; returns its status when it has, as `end_within`."""
        self.tell_to_end()
        await asyncio.wait({self.ended}, timeout=self._stop_seconds)
        if not self.ended.done():
            log.warning("the process %d does not end: killed", self.pid)
            self.kill()
            await asyncio.wait({self.ended}, timeout=KILL_SECONDS)
        return self.returncode

    def kill_silent(self) -> None:
        """Kill a child that gives no sign of life."""
        self.kill()


class ConnectedChild(Child):
    """Talks with this process over a socket. `connected` starts one, `end` has to be called."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    @classmethod
    async def connected(
        cls, command: Callable[[int], Sequence[str]], descriptors: Iterable[int] = (), **options: Any
    ) -> Self:
        """Start one; raises OSError. command: with the descriptor of its socket. The rest as in `Child`."""
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as unused:
            unused.enter_context(ours)
            process = cls(command(theirs.fileno()), [theirs.fileno(), *descriptors], **options)
            unused.pop_all()
        process._reader, process._writer = await asyncio.open_connection(sock=ours)
        return process

    def tell_to_end(self) -> None:
        """Close this end: it finishes what it does."""
        self._writer.close()

    async def end(self) -> int | None:
        status = await super().end()
        self._writer.transport.abort()  # a process that hangs in a driver keeps its end of the socket open
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        return status

    def kill_silent(self) -> None:
        super().kill_silent()
        self._writer.transport.abort()  # as above


class Keeper:
    """Keeps a child as long as a supervisor wants one."""

    def __init__(
        self, supervisor: Supervisor, clock: Callable[[], float], is_busy: Callable[[], bool] = lambda: False
    ) -> None:
        """clock: seconds. is_busy: whether the child is used, although nobody reports that."""
        self._supervisor, self._clock, self._is_busy = supervisor, clock, is_busy
        self._reported = asyncio.Event()

    async def run(self, live: Callable[[], Awaitable[None]]) -> None:
        """Call `live` for each child that is to be started, until there will be none; raises what it does."""
        while (action := self._next()) is not ChildAction.LEAVE:
            if action is ChildAction.START:
                await live()
            else:
                await self.wait()

    @contextlib.asynccontextmanager
    async def watching(self, child: Child) -> AsyncIterator[None]:
        """While this context lasts, `child` is there; after it, it has ended."""
        watching = asyncio.ensure_future(self._watch(child))
        try:
            yield
        finally:
            watching.cancel()
            await child.end()
            self._supervisor.ended(self._clock())
            self.note()

    def note(self) -> None:
        """Wake those who wait: something was reported to the supervisor."""
        self._reported.set()
        self._reported = asyncio.Event()

    async def wait(self) -> None:
        """Returns when something has been reported, or may have to be done."""
        deadline = self._supervisor.deadline()
        seconds = None if deadline is None else max(deadline - self._clock(), _MIN_WAIT_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._reported.wait()

    async def _watch(self, child: Child) -> None:
        while (action := self._next()) is None:
            await self.wait()
        if action is ChildAction.KILL:
            child.kill_silent()
        else:
            await child.end()

    def _next(self) -> ChildAction | None:
        return self._supervisor.next(self._clock(), is_busy=self._is_busy())
