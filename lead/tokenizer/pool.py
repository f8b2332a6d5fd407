"""Where jobs wait for a tokenizer process, and what happens if one takes too long or dies.

Two lanes, each with one worker. Short jobs get a slice of time in the quick lane; what needs longer is
stopped and begins again in the other one, which long jobs enter at once. So no job delays short ones by more
than the slice.
"""

import asyncio
import enum
import logging
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from lead.tokenizer.fair_queue import Client, FairQueue
from lead.tokenizer.fork_server import ForkServer, ForkServerGoneError, Worker
from lead.tokenizer.jobs import Job, Refusal, Setup, encode
from lead.tokenizer.work_limits import JobLimits
from shared.errors import QueueFullError, RequestError, ServerError, UnavailableError
from shared.pace import jittered_delays

log = logging.getLogger("lead")

_QUICK_BYTES = 64 << 10
_QUICK_SECONDS = 0.25
_MOST_WAITING = 256
_MOST_WAITING_BYTES = 64 << 20
_MOST_TRIES = 3
_GRACE_SECONDS = 0.05
"""A job whose client has left may take this long to end by itself: that is cheaper than another fork."""
_PATIENCE = 5.0
"""Time over allowed CPU time after which a worker counts as hung: it is stopped, or the machine too busy."""


_TRY_AGAIN = "the tokenizer does not answer: try again in a moment"


class Tokenizer(Protocol):
    """The seam between the HTTP routes and the tokenizer processes."""

    async def run(self, job: Job, client: Client) -> Any:
        """The result that the job's class names.

        Raises RequestError, UnavailableError, QueueFullError. Cancelling it stops the job.
        """


class _Outcome(enum.Enum):
    """DONE: the worker is ready for the next job. LATE: it still works. DIED: it has ended."""

    DONE = enum.auto()
    LATE = enum.auto()
    DIED = enum.auto()


@dataclass(eq=False, slots=True)
class _Ticket:
    client: Client
    message: bytes
    limits: JobLimits
    n_tries: int = 0
    answer: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(slots=True)
class _Lane:
    """Jobs and where they wait. slice_seconds: after which one moves to `next`."""

    next: "_Lane | None" = None
    slice_seconds: float = 0.0
    queue: FairQueue[_Ticket] = field(default_factory=lambda: FairQueue(_MOST_WAITING, _MOST_WAITING_BYTES))
    has_some: asyncio.Event = field(default_factory=asyncio.Event)

    def push(self, ticket: _Ticket) -> None:
        for removed in self.queue.push(ticket.client, ticket, len(ticket.message)):
            removed.fail(QueueFullError("too many requests wait to be tokenized: try again in a moment"))
        self.has_some.set()

    async def pop(self) -> _Ticket:
        while not self.queue:
            self.has_some.clear()
            await self.has_some.wait()
        return self.queue.pop()

    def retry(self, ticket: _Ticket) -> None:
        """After the process was killed from outside, with or without this job's doing."""
        ticket.n_tries += 1
        if ticket.answer.done():
            return
        if ticket.n_tries < _MOST_TRIES:
            self.push(ticket)
        else:
            ticket.fail(UnavailableError(_TRY_AGAIN))


class TokenizerPool:
    """A `Tokenizer`. `run_processes` has to run for it to do anything; until then jobs wait."""

    def __init__(self, setup: Setup, start: Callable[[Setup], ForkServer] = ForkServer) -> None:
        self._setup = setup
        self._start = start
        self._long = _Lane()
        self._quick = _Lane(self._long, _QUICK_SECONDS)

    async def run(self, job: Job, client: Client) -> Any:
        """See `Tokenizer`."""
        message = encode(job)
        ticket = _Ticket(client, message, JobLimits.of(len(message), self._setup.limits.prepare_seconds))
        lane = self._quick if len(message) <= _QUICK_BYTES else self._long
        lane.push(ticket)
        try:
            return _result(await ticket.answer)
        finally:
            for each in (self._quick, self._long):
                each.queue.remove(client, ticket)

    async def run_processes(self) -> None:
        """Keep the processes running, until cancelled."""
        delays = jittered_delays(0.2, 30.0, random.Random())  # noqa: S311 - jitter is no secret
        while True:
            try:
                async with self._start(self._setup) as server:
                    await server.load()
                    delays = jittered_delays(0.2, 30.0, random.Random())  # noqa: S311 - as above
                    await self._serve(server)
            except (ForkServerGoneError, OSError) as error:
                log.error("the tokenizer process has ended (%r): starting it again", error)  # noqa: TRY400 - expected
            await asyncio.sleep(next(delays))

    async def _serve(self, server: ForkServer) -> None:
        """Serve both lanes until the fork server is gone."""
        tasks: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(server.process.wait()),
            *(asyncio.ensure_future(_serve_lane(lane, server)) for lane in (self._quick, self._long)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _serve_lane(lane: _Lane, server: ForkServer) -> None:
    while True:
        worker = await server.fork()
        ticket, outcome = await _serve_worker(lane, worker)
        try:
            status = await server.end(worker)
        except BaseException:
            if ticket:
                lane.retry(ticket)
            raise
        if ticket:
            _settle(ticket, lane, outcome, status)


def _settle(ticket: _Ticket, lane: _Lane, outcome: _Outcome, status: int) -> None:
    """What becomes of a ticket whose worker has ended in `status`."""
    if outcome is _Outcome.LATE and lane.next and not ticket.answer.done():
        lane.next.push(ticket)
    elif outcome is _Outcome.DIED and status == -signal.SIGKILL:
        lane.retry(ticket)
    else:
        ticket.fail(_reason(ticket, outcome, status))


async def _serve_worker(lane: _Lane, worker: Worker) -> tuple[_Ticket | None, _Outcome]:
    """Until the worker has to be replaced; returns the ticket that is still to be answered, if any."""
    while not worker.has_ended:
        ticket = await lane.pop()
        try:
            outcome = await _attempt(ticket, worker, lane.slice_seconds or _patience(ticket))
        except asyncio.CancelledError:
            lane.retry(ticket)
            raise
        if outcome is not _Outcome.DONE:
            return ticket, outcome
    return None, _Outcome.DONE


async def _attempt(ticket: _Ticket, worker: Worker, seconds: float) -> _Outcome:
    asking = asyncio.ensure_future(worker.ask(ticket.message))
    try:
        await asyncio.wait({asking, ticket.answer}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if ticket.answer.done():
            await asyncio.wait({asking}, timeout=_GRACE_SECONDS)
        if not asking.done():
            return _Outcome.LATE
        if asking.exception():
            return _Outcome.DIED
    finally:
        asking.cancel()
    if not ticket.answer.done():
        ticket.answer.set_result(asking.result())
    return _Outcome.DONE


def _patience(ticket: _Ticket) -> float:
    return _PATIENCE * (1 + ticket.limits.cpu_seconds)


def _reason(ticket: _Ticket, outcome: _Outcome, status: int) -> Exception:
    """Why a ticket has no answer."""
    if outcome is _Outcome.LATE:
        return UnavailableError(_TRY_AGAIN)
    if status == -signal.SIGPROF:
        return RequestError(
            "rendering, tokenizing and checking this request takes more than "
            f"{ticket.limits.cpu_seconds:.1f} s of CPU time (--prepare-seconds)"
        )
    log.warning("a tokenizer process ended with status %d; its request is refused", status)
    return RequestError(
        "the text of this request cannot be tokenized: that needs too much memory, or one character is "
        "repeated too often"
    )


def _result(answer: Any) -> Any:
    """An answer of a worker's; raises what it refused with."""
    if not isinstance(answer, Refusal):
        return answer
    if answer.is_bug:
        raise ServerError(answer.message)
    raise RequestError(answer.message, answer.param, answer.code)
