"""What a lead does meanwhile: how soon /health is answered, and how much memory its processes have."""

import http.client
import threading
import time
from collections import defaultdict
from typing import Self

from bench.processes import memory_of

_INTERVAL_SECONDS = 0.1
_HEALTH_SECONDS = 60.0


class Watch:
    """Polls in threads of its own. A context manager: entering starts it, leaving ends it."""

    def __init__(self, host: str, port: int, pid: int) -> None:
        self._address = (host, port)
        self._pid = pid
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._ask, self._weigh)]
        self.slowest_health = 0.0
        """Seconds."""
        self.n_unhealthy = 0
        """Answers other than 200, and connections that failed."""
        self.first: dict[str, float] = {}
        self.last: dict[str, float] = {}
        self.peak: defaultdict[str, float] = defaultdict(float)
        """MB by process."""

    def __enter__(self) -> Self:
        self.first = memory_of(self._pid)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self.last = memory_of(self._pid)

    def _ask(self) -> None:
        while not self._ended.wait(_INTERVAL_SECONDS):
            begun = time.perf_counter()
            try:
                healthy = _is_healthy(*self._address)
            except (OSError, http.client.HTTPException):
                healthy = False
            self.n_unhealthy += not healthy
            self.slowest_health = max(self.slowest_health, time.perf_counter() - begun)

    def _weigh(self) -> None:
        while not self._ended.wait(_INTERVAL_SECONDS):
            for name, mebibytes in memory_of(self._pid).items():
                self.peak[name] = max(self.peak[name], mebibytes)


def _is_healthy(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=_HEALTH_SECONDS)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    finally:
        connection.close()
