"""A pool of tokenizer processes, in which jobs wait for a process and are stopped if they take too long.

There are two lanes, each with one worker. Short jobs get a time slice in the quick lane. A job that needs
longer is stopped and starts over in the slow lane. Jobs with long messages enter the slow lane directly. So
no job delays short ones by more than the slice.
"""

import asyncio
import logging
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from lead.tokenizer.fair_queue import Client, FairQueue
from lead.tokenizer.jobs import GrammarsNeededError, JobLimits, TokenizerJobs, encode_job
from lead.tokenizer.tokenizer_program import TokenizerProgram
from lead.tokenizer.workers import Worker, WorkerDiedError, Workers
from shared.errors import DuoError, ModelLoadError, QueueFullError, RequestError, UnavailableError
from shared.rate_limit import Backoff
from shared.sandbox import FOLLOW, JOBS

log = logging.getLogger("lead")

P = ParamSpec("P")
R = TypeVar("R")

_QUICK_BYTES = 64 << 10
_QUICK_SECONDS = 0.25
_MAX_WAITING = 256
_MAX_WAITING_BYTES = 64 << 20
_MAX_TRIES = 3
_GRACE_SECONDS = 0.05
"""The time that a job may take to end after its client has left: waiting is cheaper than another fork."""
_HUNG_SECONDS = 5.0
"""A worker counts as hung after this time multiplied by (its CPU limit in seconds + 1): a signal has stopped
it, or the machine is too busy.
"""
_TRY_AGAIN = "the tokenizer does not answer: try again in a moment"


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
    """A queue of jobs. slice_seconds: the time after which a job moves to `next`.

    needs_grammars: a worker that cannot check grammars is replaced; until then, it does other jobs. rests:
    the lane needs no worker before the next job.
    """

    next: "_Lane | None" = None
    slice_seconds: float = 0.0
    needs_grammars: bool = False
    rests: bool = False
    queue: FairQueue[_Ticket] = field(default_factory=lambda: FairQueue(_MAX_WAITING, _MAX_WAITING_BYTES))
    has_some: asyncio.Event = field(default_factory=asyncio.Event)

    def push(self, ticket: _Ticket) -> None:
        for removed in self.queue.push(ticket.client, ticket, len(ticket.message)):
            removed.fail(QueueFullError("too many requests wait for tokenization: try again in a moment"))
        self.rests = False
        self.has_some.set()

    def rest(self) -> None:
        self.rests = True
        self.has_some.set()

    async def pop(self) -> _Ticket | None:
        """Return the next job; None: nothing waits."""
        while not (self.queue or self.rests):
            self.has_some.clear()
            await self.has_some.wait()
        return self.queue.pop() if self.queue else None

    async def wait_for_job(self) -> None:
        """Wait for a job if the lane rests."""
        while self.rests and not self.queue:
            self.has_some.clear()
            await self.has_some.wait()

    def on_late(self, ticket: _Ticket) -> None:
        """Move a job that took longer than its slice to the next lane; fail it if there is none."""
        if self.next and not ticket.answer.done():
            self.next.push(ticket)
        else:
            ticket.fail(UnavailableError(_TRY_AGAIN))

    def on_death(self, ticket: _Ticket, status: int | None) -> None:
        """Retry or fail the job of a process that has ended with `status`.

        With status 0 or None the process had not begun the job, or the job is not to blame.
        """
        if status in {None, 0, -signal.SIGKILL}:
            self.retry(ticket)
        else:
            ticket.fail(_too_costly(ticket, status))

    def retry(self, ticket: _Ticket) -> None:
        """Repeat a job whose process was killed from outside, possibly because of this job."""
        ticket.n_tries += 1
        if ticket.answer.done():
            return
        if ticket.n_tries < _MAX_TRIES:
            self.push(ticket)
        else:
            ticket.fail(UnavailableError(_TRY_AGAIN))


class TokenizerPool:
    """Runs jobs while `run_processes` is running; until then jobs wait."""

    def __init__(
        self, program: TokenizerProgram, make_workers: Callable[[TokenizerProgram], Workers] = Workers
    ) -> None:
        self._base_seconds = program.limits.prepare_seconds
        self._workers = make_workers(program)
        self._has_worked = False
        self._n_rests = 0
        self._long = _Lane(rests=True)
        self._quick = _Lane(self._long, _QUICK_SECONDS)

    async def run(
        self,
        client: Client,
        method: Callable[Concatenate[TokenizerJobs, P], R],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> R:
        """Call `method` of `TokenizerJobs` in a tokenizer process; return its result.

        Raises RequestError, UnavailableError, QueueFullError; ModelLoadError or ConfigError if no job is
        possible with this model and template. If jobs were possible before, as with a file that is being
        replaced, the processes read the model again for the next job. Cancelling the call stops the job.
        """
        message, n_rests = encode_job(method, arguments, options), self._n_rests
        while isinstance(answer := await self._answer(client, message), GrammarsNeededError):
            (await _begin(self._workers, FOLLOW)).close()
            self._quick.needs_grammars = self._long.needs_grammars = True
        if isinstance(answer, ModelLoadError) and self._has_worked:
            if n_rests == self._n_rests:  # of jobs that fail together, only the first rests
                log.error("%s", answer)
                await self.rest()
            raise UnavailableError("the model cannot be read at the moment. Read the lead's log")
        if isinstance(answer, DuoError):
            raise answer
        self._has_worked = True
        result: R = answer
        return result

    async def _answer(self, client: Client, message: bytes) -> Any:
        ticket = _Ticket(client, message, JobLimits.of(len(message), self._base_seconds))
        lane = self._quick if len(message) <= _QUICK_BYTES else self._long
        lane.push(ticket)
        try:
            return await ticket.answer
        finally:
            for each in (self._quick, self._long):
                each.queue.remove(client, ticket)

    async def run_processes(self) -> None:
        """Keep the processes running, until cancelled."""
        try:
            async with asyncio.TaskGroup() as lanes:
                for lane in (self._quick, self._long):
                    lanes.create_task(_serve_lane(lane, self._workers))
        finally:
            await asyncio.to_thread(self._workers.close)

    async def rest(self) -> None:
        """End the processes while no job is expected; the next job starts them again."""
        self._n_rests += 1
        for lane in (self._quick, self._long):
            lane.rest()
        await asyncio.to_thread(self._workers.close)

    def share(self) -> int:
        """Return a socket's descriptor with which the engine uses the fork server to follow grammars
        (`Sandbox.share`).
        """
        return self._workers.share()


async def _serve_lane(lane: _Lane, workers: Workers) -> None:
    while True:
        await lane.wait_for_job()
        worker = await _begin(workers, JOBS)
        try:
            is_free = True
            while is_free and not worker.has_ended and (ticket := await lane.pop()):
                try:
                    is_free = await _attempt(ticket, worker, lane)
                except asyncio.CancelledError:
                    lane.retry(ticket)
                    raise
        finally:
            worker.close()


async def _begin(workers: Workers, kind: bytes) -> Worker:
    delays = Backoff(0.2, 30.0, random.Random())  # noqa: S311 - jitter is no secret
    while True:
        try:
            return await workers.begin(kind)
        except OSError:
            await asyncio.sleep(next(delays))


async def _attempt(ticket: _Ticket, worker: Worker, lane: _Lane) -> bool:
    """Give the ticket's job to the worker, and the ticket its answer or another try.

    Returns whether the worker is free for another job.
    """
    seconds = lane.slice_seconds or _HUNG_SECONDS * (1 + ticket.limits.cpu_seconds)
    asking = asyncio.ensure_future(worker.ask(ticket.message))
    try:
        await asyncio.wait({asking, ticket.answer}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if ticket.answer.done():  # its client has left
            await asyncio.wait({asking}, timeout=_GRACE_SECONDS)
        if not asking.done():
            worker.kill()
            lane.on_late(ticket)
            return False
        if isinstance(error := asking.exception(), WorkerDiedError):
            lane.on_death(ticket, error.status)
            return False
    finally:
        asking.cancel()
    if not ticket.answer.done():
        ticket.answer.set_result(asking.result())
    return not (lane.needs_grammars and isinstance(asking.result(), GrammarsNeededError))


def _too_costly(ticket: _Ticket, status: int) -> RequestError:
    """Return the error for a job whose worker ended with `status`."""
    if status == -signal.SIGPROF:
        return RequestError(
            "rendering, tokenizing and checking this request takes more than "
            f"{ticket.limits.cpu_seconds:.1f} s of CPU time (--prepare-seconds)"
        )
    log.warning("a tokenizer process ended with status %d. Its request was refused", status)
    return RequestError(
        "the text of this request cannot be tokenized: it needs too much memory, or repeats one "
        "character too often"
    )
