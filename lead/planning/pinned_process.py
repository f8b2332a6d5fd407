"""A process on cores of its own: a process is pinned once, and llama.cpp's threads with it."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from shared import cpus
from shared.errors import ConfigError

_Returned = TypeVar("_Returned")
_Arguments = ParamSpec("_Arguments")


class PinnedProcess:
    """Calls functions in another process, one after the other.

    A context manager: leaving it ends the process. It ends at once if the one that uses it ends in any other
    way.
    """

    def __init__(self, cores: frozenset[int] | None) -> None:
        """`cores`: where it runs; None: wherever this process may."""
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, spawn, initializer=_end_with_parent)
        self._pinning = self._pool.submit(_prepare, cores)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def start(
        self, call: Callable[_Arguments, _Returned], *arguments: _Arguments.args, **named: _Arguments.kwargs
    ) -> Future[_Returned]:
        """Call a function of a module there; its result is sent back.

        Raises ConfigError if the process cannot be pinned, or has died.
        """
        result(self._pinning)
        return self._pool.submit(call, *arguments, **named)

    def call(
        self, call: Callable[_Arguments, _Returned], *arguments: _Arguments.args, **named: _Arguments.kwargs
    ) -> _Returned:
        """As `start`, and wait. Raises also what the function raises."""
        return result(self.start(call, *arguments, **named))


def result(future: Future[_Returned]) -> _Returned:
    """Wait for what `PinnedProcess.start` gave; raises as `PinnedProcess.call`."""
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise ConfigError(
            "the process that measures has died: is there enough memory for both models?"
        ) from error


def _end_with_parent() -> None:
    """Loading and measuring may take minutes, and the models all of the memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which a terminal sends to both
    threading.Thread(target=_await_end_of_parent, daemon=True).start()


def _await_end_of_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)


def _prepare(cores: frozenset[int] | None) -> None:
    if cores is not None:
        cpus.pin(cores)
