"""The ring's module for the seam `before_load`: with `--rpc` the engine waits for its workers before it loads
the model.
"""

import time
from collections.abc import Callable

from lead.engine.heartbeat import Heartbeat
from lead.engine.load import Load
from lead.rpc.rpc_workers import wait_for_workers
from shared.rpc import rpc_backend

_MIN_SECONDS = 0.001
"""The minimum CPU time between two looks that counts as computing. A sign of life takes less, loading a part
of a model more.
"""


class Computing:
    """Detects whether this process computes while it loads a model with layers on other machines."""

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        """`clock`: seconds of CPU time that this process has used."""
        self._clock = clock
        self._before = clock()

    def has_proceeded(self) -> bool:
        """Return whether this process has used CPU time since the last call."""
        before, self._before = self._before, self._clock()
        return self._before - before > _MIN_SECONDS


def before_load(load: Load, heartbeat: Heartbeat | None) -> Load:
    """Wait for the workers of `load`; raises ModelLoadError, WorkerAwayError."""
    if not load.rpc:
        return load
    wait_for_workers(load.rpc, load.rpc_timeout)
    if heartbeat:
        heartbeat.watch(Computing().has_proceeded)  # a worker that hangs lets llama.cpp wait for ever
    rpc_backend.add_workers(load.rpc)
    return load
