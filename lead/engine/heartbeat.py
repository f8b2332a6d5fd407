"""Signs of life of the engine process, from a thread of its own."""

import threading
from collections.abc import Callable

from lead.engine.events import Alive, Event


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
