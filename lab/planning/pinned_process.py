"""A process pinned to given cores. Pinning applies to a whole process, with llama.cpp's threads."""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from shared import cpus
from shared.errors import ConfigError
from shared.lifeline import end_with

T = TypeVar("T")
R = TypeVar("R")

_MAX_PROCESSES = 16


@contextlib.contextmanager
def pinned_process(cores: frozenset[int] | None) -> Iterator[ProcessPoolExecutor]:
    """Yield a process that runs on `cores`, for one call at a time; None: on all cores of this process.

    It ends with the context, even during a call, and when this process ends. Raises ConfigError if it may not
    run on the cores, or has died.
    """
    executor = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    pid = None
    try:
        pid = executor.submit(_settle, cores).result()
        yield executor
    except BrokenProcessPool as error:
        pid = None
        raise ConfigError("the measuring process died. Check that memory suffices for both models") from error
    finally:
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
        executor.shutdown()


@contextlib.contextmanager
def parallel_map(n: int) -> Iterator[Callable[[Callable[[T], R], Sequence[T]], list[R]]]:
    """Yield a `map` whose calls run in `n` processes or fewer, which end as those of `pinned_process` do."""
    n = min(n, _MAX_PROCESSES)
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(pinned_process(None)) for _ in range(n)]

        def spread(call: Callable[[T], R], items: Sequence[T]) -> list[R]:
            jobs = [processes[i % n].submit(call, item) for i, item in enumerate(items)]
            return [job.result() for job in jobs]

        yield spread


def _settle(cores: frozenset[int] | None) -> int:
    """Set up the process in its first call; return its id."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal signals both; this one ends with its parent
    parent = multiprocessing.parent_process()
    assert parent
    end_with(parent.sentinel)  # it may run for minutes and fill the memory
    if cores is not None:
        cpus.pin(cores)
    return os.getpid()
