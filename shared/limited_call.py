"""Runs a call in a forked process, for work on an untrusted file that may never end."""

import os
import pickle
import signal
from collections.abc import Callable
from typing import TypeVar

from shared.errors import DuoError
from shared.fork_server import fork, reap
from shared.sandbox import WorkerLimits

_Returned = TypeVar("_Returned")


class LimitError(DuoError):
    """A call exceeded its limits."""


def call_limited(work: Callable[[], _Returned], seconds: float, n_bytes: int) -> _Returned:
    """Call `work` in a process; return its result, or raise its DuoError. Result and error must be picklable.

    Raises LimitError if `work` takes more CPU time or memory than the limits, or crashes.
    """
    reading, writing = os.pipe()

    def answer() -> None:
        limits = WorkerLimits()
        with limits.memory(n_bytes), limits.time(seconds):
            try:
                found = pickle.dumps((work(), None))
            except DuoError as error:
                found = pickle.dumps((None, error))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(found)

    pid = fork(answer, [reading])
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    status = reap(pid)
    if status == -signal.SIGPROF:
        raise LimitError(f"it takes more than {seconds:g} s of CPU time")
    if status:
        raise LimitError("it takes too much memory, or crashes")
    result, error = pickle.loads(data)  # noqa: S301 - of a copy of this process
    if error:
        raise error
    return result  # type: ignore[no-any-return]  # what `work` returned
