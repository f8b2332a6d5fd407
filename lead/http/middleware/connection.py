"""Connections that do not wait for ever: for a request to arrive, or for an answer to be taken.

uvicorn has no limit for either. A timer is set when something begins to be waited for and not per message, so
streaming costs nothing.
"""

import asyncio
from typing import cast

import h11
import uvicorn
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from lead.settings.limits import Bounds
from shared.protocol import MAX_BACK_MESSAGE_BYTES, MAX_LEAD_MESSAGE_BYTES

_GRACE_SECONDS = 1.0
"""What a body may be late before its connection ends: its handler is to say 408 first."""
_MOST_UNREAD_BYTES = 2 * MAX_LEAD_MESSAGE_BYTES
"""Twice the largest message of the lead: its news wait until a back has taken those before."""


class GuardedConfig(uvicorn.Config):
    """uvicorn's configuration with the lead's bounds, which its connections obey."""

    def __init__(self, app: object, bounds: Bounds, **options: object) -> None:
        super().__init__(
            app,  # type: ignore[arg-type]  # uvicorn's own types for ASGI differ from Starlette's
            http=HttpConnection,
            ws=BackConnection,
            ws_max_size=MAX_BACK_MESSAGE_BYTES,
            **options,  # type: ignore[arg-type]  # uvicorn's, by name
        )
        self.bounds = bounds


class WriteGuard:
    """Ends a connection whose peer takes nothing for `write_seconds`. One per connection."""

    def __init__(self, transport: asyncio.Transport, seconds: float) -> None:
        self._transport = transport
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._n_unsent = 0

    def watch(self) -> None:
        """Something is to be taken from now on."""
        self.cancel()
        self._n_unsent = self._transport.get_write_buffer_size()
        if self._n_unsent:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._look)

    def cancel(self) -> None:
        """Enough was taken, or the connection is over."""
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if self._transport.get_write_buffer_size() < self._n_unsent:
            self.watch()  # slow, but it reads
        else:
            # Not close(), which waits until all has been taken.
            self._transport.abort()


class HttpConnection(H11Protocol):
    """uvicorn's HTTP/1.1 with time limits."""

    config: GuardedConfig

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's are none of its subclasses
        super().connection_made(transport)
        self._guard = WriteGuard(transport, self.config.bounds.write_seconds)
        self._awaited: object = None
        self._timer: asyncio.TimerHandle | None = None
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._guard.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._guard.watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._guard.cancel()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._guard.watch()  # what is closed now is gone only when it has been sent

    def _expect(self) -> None:
        """Set the timer for what the client has to send next, unless it runs already.

        Between requests there is none: the first byte of the next one has uvicorn's keep-alive time.
        """
        if self.transport.get_protocol() is not self:  # it has become a WebSocket
            self._stop_timer()
            return
        match self.conn.their_state:
            case h11.IDLE:
                awaited: object = h11.IDLE
                seconds = self.config.bounds.header_seconds
            case h11.SEND_BODY:
                awaited = self.cycle
                seconds = self.config.bounds.body_seconds + _GRACE_SECONDS
            case _:
                self._stop_timer()
                return
        if awaited is not self._awaited:
            self._stop_timer()
            self._awaited = awaited
            self._timer = self.loop.call_later(seconds, self._give_up)

    def _stop_timer(self) -> None:
        self._awaited = None
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            # Part of a head has arrived: say why, as RFC 9110 (15.5.9) asks for.
            self.transport.write(
                b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
        self.transport.close()


class BackConnection(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, which does not wait for a peer that has stopped reading."""

    config: GuardedConfig

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._guard = WriteGuard(self.transport, self.config.bounds.write_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._guard.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._guard.watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._guard.cancel()

    def handle_ping(self) -> None:
        # uvicorn answers whatever is unread; a peer that only pings would have the lead keep all its pongs.
        if self.transport.get_write_buffer_size() > _MOST_UNREAD_BYTES:
            self.transport.abort()
        else:
            super().handle_ping()

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True  # refused, and said so; uvicorn logs an error for it otherwise

    def keepalive_timeout(self) -> None:
        """A peer that answers no pings takes no goodbye either."""
        super().keepalive_timeout()
        self.transport.abort()
