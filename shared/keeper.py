"""Child processes under asyncio: waits for them, ends them, and keeps one running for a `Supervisor`."""

import asyncio
import concurrent.futures
import contextlib
import logging
import signal
import socket
import subprocess
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, Self, TypeVar

from shared.python_child import KILL_SECONDS, ChildProcess
from shared.supervisor import ChildAction, ChildState, Supervisor

log = logging.getLogger("lead")

R = TypeVar("R")
Heard = TypeVar("Heard")

_MIN_WAIT_SECONDS = 0.01
"""The minimum number of seconds between two checks for due actions."""


def _in_thread(call: Callable[..., R], *arguments: Any) -> "asyncio.Future[R]":
    """Run `call` in a thread that does not keep this process alive; return a future of the result."""
    found: concurrent.futures.Future[R] = concurrent.futures.Future()
    found.set_running_or_notify_cancel()

    def work() -> None:
        try:
            found.set_result(call(*arguments))
        except Exception as error:  # noqa: BLE001 - reported to the waiting caller
            found.set_exception(error)

    threading.Thread(target=work, name="child", daemon=True).start()
    return asyncio.wrap_future(found)


async def run_child(
    command: Sequence[str], question: bytes, seconds: float | None
) -> subprocess.CompletedProcess[bytes]:
    """Run a child that reads `question`, and return its status, answer and errors.

    Raises TimeoutError after `seconds`; None: no limit. The child has ended or is killed when this returns.
    """
    pipe = subprocess.PIPE
    child = ChildProcess(command, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(seconds):
            answer, errors = await _in_thread(child.communicate, question)
    finally:
        child.kill()
    return subprocess.CompletedProcess(command, child.returncode, answer, errors)


class Child(ChildProcess):
    """A child process under asyncio. ended: a future of its exit status."""

    def __init__(
        self, command: Sequence[str], descriptors: Iterable[int] = (), *, stop_seconds: float, **options: Any
    ) -> None:
        """stop_seconds: the time that the child may take to end before it is killed.

        Other parameters as in `ChildProcess`.
        """
        super().__init__(command, descriptors, **options)
        self._stop_seconds = stop_seconds
        try:
            self.ended: asyncio.Future[Any] = _in_thread(self.wait)
        except RuntimeError as error:  # there are too many threads
            self.end_within(0.0)
            raise OSError(str(error)) from error

    async def end(self) -> int | None:
        """Ask the child to end, and wait for its end; return its status as `end_within` does."""
        self.tell_to_end()
        await asyncio.wait({self.ended}, timeout=self._stop_seconds)
        if not self.ended.done():
            log.warning("killed the process %d because it did not end", self.pid)
            self.kill()
            await asyncio.wait({self.ended}, timeout=KILL_SECONDS)
        return self.returncode

    def kill_silent(self) -> None:
        """Kill a child that gives no sign of life."""
        self.kill()

    @property
    def outcome(self) -> str:
        """The way in which the process ended, as a phrase: its status or signal."""
        status = self.returncode
        if status is None:
            return "no status: it cannot be killed and probably hangs in a driver"
        if status >= 0:
            return f"status {status}"
        names = {int(each): each.name for each in signal.Signals}  # real-time signals have none
        return f"signal {names.get(-status, -status)}"


class ConnectedChild(Child):
    """A child connected to this process by a socket. Start a child with `connected`, and call `end`."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    @classmethod
    async def connected(
        cls, command: Callable[[int], Sequence[str]], descriptors: Iterable[int] = (), **options: Any
    ) -> Self:
        """Start a child; raises OSError. `command` makes the command line from the descriptor of the child's
        socket.

        Other parameters as in `Child`.
        """
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as unused:
            reader, writer = await asyncio.open_connection(sock=ours)
            unused.callback(writer.close)
            process = cls(command(theirs.fileno()), [theirs.fileno(), *descriptors], **options)
            unused.pop_all()
        process._reader, process._writer = reader, writer
        return process

    def tell_to_end(self) -> None:
        """Close this end of the socket, after which the child finishes its work and ends."""
        self._writer.close()

    async def end(self) -> int | None:
        try:
            status = await super().end()
        finally:
            self._writer.transport.abort()  # a process that hangs in a driver keeps its end open
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        return status

    def kill_silent(self) -> None:
        super().kill_silent()
        self._writer.transport.abort()  # as above


AnyChild = TypeVar("AnyChild", bound=Child)


class Keeper(Generic[AnyChild]):
    """Keeps a child running as long as a supervisor wants one. The caller reports events of the child."""

    def __init__(
        self,
        name: str,
        supervisor: Supervisor,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_busy: Callable[[], bool] = lambda: False,
        on_sleep: Callable[[], Awaitable[None]] | None = None,
        level: int = logging.ERROR,
    ) -> None:
        """name: the child's name in the log. level: the level at which deaths are logged. clock: returns
        seconds.

        is_busy: returns whether the child is in use without reports of use. on_sleep: called when a child was
        ended for lack of use.
        """
        self._name, self._supervisor, self._clock, self._is_busy = name, supervisor, clock, is_busy
        self._on_sleep, self._level = on_sleep, level
        self._reported = asyncio.Event()
        self.child: AnyChild | None = None
        """The running child that still replies, as far as is known."""

    @property
    def state(self) -> ChildState:
        return self._supervisor.state

    async def run(
        self, start: Callable[[], Awaitable[AnyChild]], live: Callable[[AnyChild], Awaitable[object]]
    ) -> None:
        """Start a child whenever one is wanted, and await `live` with it, until no child will be wanted.

        start: starts a child; its OSError is logged. live: returns when the child no longer replies; its
        exceptions propagate.
        """
        while (action := self._next()) is not ChildAction.LEAVE:
            if action is ChildAction.START:
                await self._keep_one(start, live)
            else:
                await self.wait()

    async def listen(
        self, messages: AsyncGenerator[Heard], take: Callable[[Heard], None], max_silence: float
    ) -> None:
        """Call `take` with each message of a child.

        Every message is a sign of life. max_silence: the seconds without a message after which the child is
        killed; 0: never.
        """
        self._supervisor.max_silence = max_silence  # its silence before does not count
        self._note()
        async with contextlib.aclosing(messages):
            async for message in messages:
                self._supervisor.heard()
                take(message)

    def ready(self) -> None:
        """Report that the child is ready for use."""
        self._supervisor.ready(self._clock())
        self._note()

    def worked(self) -> None:
        """Report that the child has worked (`Supervisor.worked`)."""
        self._supervisor.worked()

    def use(self) -> None:
        """Report that the child is needed; a sleeping child is started."""
        if self._supervisor.used(self._clock()):
            if self._supervisor.has_been_ready:
                log.info("a request arrived: starting %s again", self._name)
            self._note()

    def lost(self, had_work: Callable[[], bool]) -> None:
        """Report that the child no longer replies. had_work: returns whether the child had work; called if it
        has died.
        """
        self.child = None
        if self._supervisor.lost(self._clock()) and not had_work():
            self._supervisor.died_idle()
        self._note()

    def drop(self, child: AnyChild) -> None:
        """Kill a child that is no longer of use."""
        child.kill()
        if self.child is child:
            self.lost(lambda: True)

    def fail(self) -> None:
        """Report that starting another child would not help."""
        self._supervisor.fail()

    def stop(self) -> None:
        """Make `run` end the child and return."""
        self._supervisor.stop()
        self._note()

    async def wait(self) -> None:
        """Wait until an event is reported, or the supervisor's next action may be due."""
        deadline = self._supervisor.deadline()
        seconds = None if deadline is None else max(deadline - self._clock(), _MIN_WAIT_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._reported.wait()

    async def _keep_one(
        self, start: Callable[[], Awaitable[AnyChild]], live: Callable[[AnyChild], Awaitable[object]]
    ) -> None:
        try:
            child = self.child = await start()
        except OSError as error:  # no descriptors, memory or processes: there may be some later
            log.log(self._level, "%s cannot be started: %s", self._name, error)
            self._supervisor.ended(self._clock())
            return
        watching = asyncio.ensure_future(self._watch(child))
        ended_itself = False  # else what ends it is an exception, which says why
        try:
            await live(child)
            ended_itself = True
        finally:
            watching.cancel()
            await child.end()
            self.lost(lambda: True)  # unless that has been reported
            if ended_itself and self.state in {ChildState.STARTING, ChildState.RESTARTING}:
                log.log(self._level, "%s (pid %d) ended with %s", self._name, child.pid, child.outcome)
            self._supervisor.ended(self._clock())
            self._note()
        if self.state is ChildState.SLEEPING:
            seconds = self._supervisor.sleep_seconds
            log.info("%s was idle for %g s (--sleep-idle-seconds). The model is freed", self._name, seconds)
            if self._on_sleep:
                await self._on_sleep()

    async def _watch(self, child: AnyChild) -> None:
        while (action := self._next()) is None:
            await self.wait()
        if action is ChildAction.KILL:
            seconds = self._supervisor.max_silence
            log.error(
                "killing %s (pid %d) because it made no progress for %g s (--engine-timeout)",
                self._name,
                child.pid,
                seconds,
            )
            child.kill_silent()
        else:
            await child.end()

    def _next(self) -> ChildAction | None:
        return self._supervisor.next(self._clock(), is_busy=self._is_busy())

    def _note(self) -> None:
        """Wake the tasks that wait for a report."""
        self._reported.set()
        self._reported = asyncio.Event()
