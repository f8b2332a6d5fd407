"""Signs of life of the engine process, sent by a separate thread."""

import threading
from collections.abc import Callable

from lead.engine.events import Alive, Event


class Heartbeat(threading.Thread):
    """A thread that sends `Alive` while the engine is idle, loads its model or makes progress.

    The thread also runs while the engine is in native code. It stops with the process (SIGSTOP). It sends
    nothing while a step makes no progress, for example when a driver hangs.
    """

    def __init__(self, seconds: float, send: Callable[[Event], None]) -> None:
        """Send `Alive` with `send` every `seconds` seconds."""
        super().__init__(name="heartbeat", daemon=True)
        self._seconds = seconds
        self._send = send
        self._has_proceeded: Callable[[], bool] = lambda: True
        self._ended = threading.Event()

    def watch(self, has_proceeded: Callable[[], bool]) -> None:
        """Send only if `has_proceeded`, called before each `Alive`, returns True."""
        self._has_proceeded = has_proceeded

    def end(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.wait(self._seconds):
            if self._has_proceeded():
                self._send(Alive())
