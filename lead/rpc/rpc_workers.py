"""Waits for the machines that compute layers of the target, before the engine loads it."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack

from shared.errors import ModelLoadError
from shared.rpc.rpc_probe import ForeignWorkerError, WorkerAwayError, probe

log = logging.getLogger("engine")

_PROBE_SECONDS = 3.0
_PAUSE_SECONDS = 0.5
_LOG_SECONDS = 10.0


def wait_for_workers(
    addresses: Sequence[str],
    seconds: float,
    ask: Callable[[str, float], AbstractContextManager[object]] = probe,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until each worker has answered.

    Raises WorkerAwayError if a worker has not answered within `seconds`, and ModelLoadError at once if a
    worker never will. ask: connects to a worker, given its address and the seconds that this may take. The
    connections are kept until all workers have answered, so that two addresses cannot be one worker.
    """
    deadline, next_log = clock() + seconds, clock()
    with ExitStack() as held:
        for address in addresses:
            while True:
                try:
                    held.enter_context(ask(address, _PROBE_SECONDS))
                    break
                except ForeignWorkerError as error:
                    raise ModelLoadError(str(error)) from error
                except WorkerAwayError as error:
                    if clock() >= deadline:
                        raise
                    if clock() >= next_log:
                        log.warning("%s. Waiting up to %g s (--rpc-timeout)", error, seconds)
                        next_log = clock() + _LOG_SECONDS
                    sleep(_PAUSE_SECONDS)
