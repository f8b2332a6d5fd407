"""A limit on open connections, which leaves file descriptors for everything else.

At the limit, a new connection replaces the connection that has been idle longest. If all
connections are being answered, the new one gets 503 for everything except `/health`.
"""

import asyncio
import enum
import logging
import math
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from lead.http.error_responses import error_response
from lead.http.middleware.auth import HEALTH
from shared import descriptors
from shared.errors import UnavailableError

log = logging.getLogger("lead")

_N_FREE = 16
"""The number of descriptors kept free of connections: starting the engine or the local back needs up to 8."""
_N_OVER = 16
"""The number of connections beyond the limit that get 503; further connections are closed."""
_COUNT_SECONDS = 0.1
"""The time between two counts of open files; counting thousands takes milliseconds."""


class Room(enum.Enum):
    """The room for another connection."""

    FREE = enum.auto()
    SCARCE = enum.auto()
    """The connection is beyond the limit, and all other connections are being answered."""
    NONE = enum.auto()


class ConnectionLimit:
    """Tracks the connections that wait for their client, and closes some of them to make room."""

    def __init__(
        self,
        n_descriptors: int,
        count: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """n_descriptors: the maximum number of descriptors of this process, for connections and all else.

        count: returns the number of open descriptors; None: counts the descriptors of this process. clock:
        returns seconds.
        """
        self._max = n_descriptors - _N_FREE - _N_OVER
        self._count = count or descriptors.n_open
        self._clock = clock
        self._n_others = 0
        self._counted_at = -math.inf
        self._waiting: dict[asyncio.Transport, object] = {}
        """The waiting connections, in the order in which they began to wait."""
        self._aborted: set[asyncio.Transport] = set()
        """Aborted connections, whose descriptors will soon be free."""
        self._has_warned = False

    def make_room(self, n_connections: int) -> Room:
        """Close waiting connections to make room for a new connection, and return the room for it.

        n_connections: the number of connections including the new one.
        """
        if (now := self._clock()) - self._counted_at >= _COUNT_SECONDS:
            self._n_others, self._counted_at = self._count() - n_connections, now
        n_over = n_connections - len(self._aborted) + self._n_others - self._max
        while n_over > 0 and self._waiting:
            self._warn()
            self._abort_oldest()
            n_over -= 1
        if n_over <= 0:
            return Room.FREE
        return Room.SCARCE if n_over <= _N_OVER else Room.NONE

    def wait(self, transport: asyncio.Transport, awaited: object) -> None:
        """Record that `transport` waits for its client to send something, unless that is recorded already."""
        if self._waiting.get(transport) is not awaited:
            self.stop_waiting(transport)
            self._waiting[transport] = awaited

    def stop_waiting(self, transport: asyncio.Transport) -> None:
        self._waiting.pop(transport, None)

    def end(self, transport: asyncio.Transport) -> None:
        self.stop_waiting(transport)
        self._aborted.discard(transport)

    def _abort_oldest(self) -> None:
        oldest = next(iter(self._waiting))
        del self._waiting[oldest]
        self._aborted.add(oldest)
        oldest.abort()  # close() would wait until the client has read everything

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "the limit on open files is reached. New connections now replace idle "
                "connections. Raise the limit with ulimit -n"
            )


def only_health(app: ASGIApp) -> ASGIApp:
    """Return the app for connections beyond the limit: 503 for everything except `/health`."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in HEALTH and scope.get("method") in {"GET", "HEAD"}:
            await app(scope, receive, send)
            return
        refusal = error_response(UnavailableError("too many connections: try again in a moment"))
        refusal.headers["Connection"] = "close"
        await refusal(scope, receive, send)

    return serve
