"""Runs jobs in tokenizer processes."""

import logging
from multiprocessing.connection import Connection

from lead.tokenizer.jobs import JobLimits, TokenizerJobs, decode, encode
from shared.errors import DuoError, RequestError, ServerError
from shared.sandbox import WorkerLimits

log = logging.getLogger("tokenizer")


class JobHandler:
    """A `shared.sandbox.TaskHandler`: a task is a series of jobs, each answered with its result or
    an error.
    """

    def __init__(self, jobs: TokenizerJobs | DuoError, base_seconds: float) -> None:
        """jobs: the object that does the jobs, or the reason why no job can be done."""
        self._jobs = jobs
        self._base_seconds = base_seconds

    def prepare(self) -> None:
        """Do nothing: everything is loaded."""

    def warm_up(self) -> None:
        """Run each kind of job once, so that none is slower the first time."""

    def do(self, connection: Connection, limits: WorkerLimits) -> None:
        """Run jobs until the other end of `connection` is closed, or a job has used much memory."""
        while not limits.has_grown:
            data = connection.recv_bytes()
            allowed = JobLimits.of(len(data), self._base_seconds)
            with limits.memory(allowed.heap_bytes), limits.time(allowed.cpu_seconds):
                answer = self._answer(data)
            connection.send_bytes(encode(answer))

    def _answer(self, data: bytes) -> object:
        if isinstance(self._jobs, DuoError):
            return self._jobs
        try:
            method, arguments, options = decode(data)
            return getattr(self._jobs, method)(*arguments, **options)
        except DuoError as error:
            return error
        except MemoryError:
            return RequestError("preparing this request takes too much memory")
        except Exception as error:
            log.exception("preparing a request failed")
            return ServerError(str(error))
