"""A process on cores of its own: a process is pinned once, and llama.cpp's threads with it."""

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar

from shared import cpus
from shared.errors import ConfigError, DuoError

_Returned = TypeVar("_Returned")
_Inputs = ParamSpec("_Inputs")


class Pending(Generic[_Returned]):
    """What a call in another process will return; results are taken in the order of the calls."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection = connection

    def result(self) -> _Returned:
        """Wait for it. Raises what the function raises, and ConfigError if the process has died."""
        try:
            returned, error = self._connection.recv()
        except (EOFError, ConnectionError) as lost:
            raise ConfigError(
                "the process that measures has died: is there enough memory for both models?"
            ) from lost
        if error is not None:
            raise error
        result: _Returned = returned
        return result


class PinnedProcess:
    """Calls functions in another process, one after the other.

    A context manager: leaving it ends the process. It ends at once if the one that uses it ends in any other
    way.
    """

    def __init__(self, cores: frozenset[int] | None) -> None:
        """`cores`: where it runs; None: wherever this process may. Calls raise ConfigError if it may not."""
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs, cores), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._process.terminate()
        self._process.join()

    def start(
        self,
        call: Callable[_Inputs, _Returned],
        *arguments: _Inputs.args,
        **named: _Inputs.kwargs,
    ) -> Pending[_Returned]:
        """Call a function of a module there; its result is sent back. Raises ConfigError if it has died."""
        pending = Pending[_Returned](self._connection)
        try:
            self._connection.send((call, arguments, named))
        except ConnectionError:
            pending.result()
        return pending

    def call(
        self,
        call: Callable[_Inputs, _Returned],
        *arguments: _Inputs.args,
        **named: _Inputs.kwargs,
    ) -> _Returned:
        """The same as `start`, but waits; also raises what the function raises."""
        return self.start(call, *arguments, **named).result()


def _serve(connection: "Connection[Any, Any]", cores: frozenset[int] | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both; this one ends with the other
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, ConnectionError):  # the other one has ended
        while True:
            call, arguments, named = connection.recv()
            connection.send(_outcome(cores, call, arguments, named))


def _outcome(
    cores: frozenset[int] | None, call: Callable[..., Any], arguments: Any, named: Any
) -> tuple[Any, Exception | None]:
    """(what the call returned, what it raised)."""
    try:
        if cores is not None:
            cpus.pin(cores)
        return call(*arguments, **named), None
    except DuoError as error:
        return None, error
    except Exception as error:  # noqa: BLE001 - raised where the call was made, without this trace
        traceback.print_exc()
        return None, error


def _end_with_parent() -> None:
    """In the middle of a call, too: loading and measuring may take minutes, and models all of the memory."""
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)
