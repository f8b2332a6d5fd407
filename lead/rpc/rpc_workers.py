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

    Raises WorkerAwayError if one has not within `seconds`, and ModelLoadError at once if one never will. ask:
    called with an address and the seconds it may take. Its results are kept until all have answered, so that
    two addresses are two workers.
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
