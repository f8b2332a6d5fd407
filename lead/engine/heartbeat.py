"""Signs of life of the engine process, from a thread of its own."""

import threading
import time
from collections.abc import Callable

from lead.engine.events import Alive, Event

_LEAST_SECONDS = 0.001
"""CPU time between two looks that counts as computing: more than a sign of life takes, less than loading a
part of a model."""


class Computing:
    """Whether this process computes, while it loads a model of which other machines have a part."""

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        """`clock`: seconds of CPU time that this process has used."""
        self._clock = clock
        self._before = clock()

    def has_proceeded(self) -> bool:
        """Whether it has computed since it was asked last."""
        before, self._before = self._before, self._clock()
        return self._before - before > _LEAST_SECONDS


class Heartbeat(threading.Thread):
    """Sends `Alive` while the engine is idle, loads its model or proceeds.

    The thread also runs while the engine is in native code. It stops with the process (SIGSTOP), and says
    nothing while a step does not proceed, as in a driver that hangs.
    """

    def __init__(self, seconds: float, send: Callable[[Event], None]) -> None:
        """One each `seconds`."""
        super().__init__(name="heartbeat", daemon=True)
        self._seconds = seconds
        self._send = send
        self._has_proceeded: Callable[[], bool] = lambda: True
        self._ended = threading.Event()

    def watch(self, has_proceeded: Callable[[], bool]) -> None:
        """From now on ask `has_proceeded` whether there is a sign of life since it was asked last."""
        self._has_proceeded = has_proceeded

    def end(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.wait(self._seconds):
            if self._has_proceeded():
                self._send(Alive())
