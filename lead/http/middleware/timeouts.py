"""Limits on connections: their number, the time for a request to arrive, and the time to read a response.

uvicorn has no such limits, so this module subclasses uvicorn's protocol classes. Their interface is not
stable: pyproject.toml allows only tested versions. A timer starts when waiting starts, not with each message,
so streaming costs nothing.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from lead.http.middleware.connections import ConnectionLimit, Room, only_health
from lead.settings.limits import RequestLimits
from shared import descriptors
from shared.protocol import MAX_BACK_MESSAGE_BYTES, MAX_LEAD_MESSAGE_BYTES
from shared.rate_limit import Bucket

P = TypeVar("P", int, int | None)
_GRACE_SECONDS = 1.0
"""Seconds added to the time for a body, so that BodyReader can answer 408 before the connection is closed."""
_MORE_FRAMES_PER_SECOND, _MORE_FRAMES = 100.0, 2000.0
"""The number of frames other than whole messages (pings, pongs, parts) that a peer may send: on average, and
in a burst.
"""
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_MAX_UNREAD_BYTES = 2 * MAX_LEAD_MESSAGE_BYTES
"""The maximum number of bytes that a peer has not read. Twice the lead's largest message is enough, as a back
gets updates one after the other.
"""


class ServerConfig(uvicorn.Config):
    """uvicorn's configuration, with the lead's limits for connections."""

    def __init__(
        self, app: object, limits: RequestLimits, n_descriptors: int | None = None, **options: object
    ) -> None:
        """n_descriptors: the maximum number of descriptors of this process; None: ask the system."""
        super().__init__(
            app,  # type: ignore[arg-type]  # uvicorn's own types for ASGI differ from Starlette's
            http=HttpProtocol,
            ws=WebSocketProtocol,
            ws_max_size=MAX_BACK_MESSAGE_BYTES,
            **options,  # type: ignore[arg-type]  # uvicorn's, by name
        )
        self.limits = limits
        self.connections = ConnectionLimit(n_descriptors or descriptors.limit())


def _as_ipv4(address: tuple[str, P] | None) -> tuple[str, P] | None:
    """Return the IPv4 address of a peer that connected by IPv4 to an IPv6 socket; other addresses are
    unchanged.
    """
    return (address[0].removeprefix("::ffff:"), address[1]) if address and "." in address[0] else address


class WriteTimeout:
    """Aborts its connection if the peer has read nothing for `seconds`."""

    def __init__(self, transport: asyncio.Transport, seconds: float) -> None:
        self._transport = transport
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._n_unsent = 0

    def start(self) -> None:
        """Restart the timer, because the peer has unread data from now on."""
        self.cancel()
        self._n_unsent = self._transport.get_write_buffer_size()
        if self._n_unsent:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._check)

    def cancel(self) -> None:
        """Stop the timer, because the peer has read enough or the connection has ended."""
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        if self._transport.get_write_buffer_size() < self._n_unsent:
            self.start()  # slow, but it reads
        else:
            # Not close(), which waits until everything has been read.
            self._transport.abort()


class HttpProtocol(H11Protocol):
    config: ServerConfig

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's transports do not subclass it
        super().connection_made(transport)
        self.client, self.server = _as_ipv4(self.client), _as_ipv4(self.server)
        self._write_timeout = WriteTimeout(transport, self.config.limits.write_seconds)
        self._awaited: object = None
        self._timer: asyncio.TimerHandle | None = None
        self._take_room()
        self._restart_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self.config.connections.end(self.transport)
        self._stop_timer()
        self._write_timeout.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._note_wait()
        self._restart_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timeout.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_timeout.cancel()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_wait()
        self._write_timeout.start()  # a closing connection stays open until all has been sent

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            super().send_400_response(msg)
        else:
            self.transport.abort()  # the rest of a body is invalid, but its request is being answered already

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        if self._room is Room.FREE:
            super().handle_websocket_upgrade(event)
        else:
            self.transport.abort()  # it would stay: a back tries again by itself

    def _take_room(self) -> None:
        self._room = self.config.connections.make_room(len(self.connections))
        match self._room:
            case Room.FREE:
                pass
            case Room.SCARCE:
                self.app = only_health(self.app)
            case Room.NONE:
                self.transport.abort()
        self._note_wait()

    def _note_wait(self) -> None:
        """Record whether this connection waits for its client: a new connection may then replace it.

        A closing connection waits for its client to read the rest.
        """
        if self.transport.get_protocol() is not self:
            return  # a WebSocket says so itself
        if self.transport.is_closing() or self.conn.their_state in {h11.IDLE, h11.SEND_BODY}:
            self.config.connections.wait(self.transport, self.conn.their_state)
        else:
            self.config.connections.stop_waiting(self.transport)

    def _restart_timer(self) -> None:
        """Start the timer for the client's next data, unless it is running.

        Between requests no timer runs; uvicorn's keep-alive timeout applies.
        """
        if self.transport.get_protocol() is not self:  # it has become a WebSocket
            self._stop_timer()
            return
        match self.conn.their_state:
            case h11.IDLE:
                awaited: object = h11.IDLE
                seconds = self.config.limits.header_seconds
            case h11.SEND_BODY:
                awaited = self.cycle
                seconds = self.config.limits.body_seconds + _GRACE_SECONDS
            case _:
                self._stop_timer()
                return
        if awaited is not self._awaited:
            self._stop_timer()
            self._awaited = awaited
            self._timer = self.loop.call_later(seconds, self._on_timeout)

    def _stop_timer(self) -> None:
        self._awaited = None
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            # Part of a header has arrived: answer 408, as RFC 9110 (15.5.9) asks for.
            self.transport.write(
                b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
        self.transport.close()


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, with limits on frames and a time limit for a peer that has stopped reading.

    The connection counts as waiting for its peer until the first message has arrived, and again while it is
    being closed. A waiting connection may be closed to make room.
    """

    config: ServerConfig

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.client, self.server = _as_ipv4(self.client), _as_ipv4(self.server)
        self._write_timeout = WriteTimeout(self.transport, self.config.limits.write_seconds)
        self._more_frames = Bucket(_MORE_FRAMES_PER_SECOND, _MORE_FRAMES, self.loop.time())
        self.config.connections.wait(self.transport, self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.config.connections.end(self.transport)
        self._write_timeout.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.handshake_initiated:
            # The library has refused the request, whose headers come in one piece; uvicorn would wait.
            self.transport.write(b"".join(self.conn.data_to_send()) or _BAD_REQUEST)
            self.transport.close()

    def shutdown(self) -> None:
        if not self.transport.is_closing():  # uvicorn would send a second end
            super().shutdown()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timeout.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_timeout.cancel()

    def handle_events(self) -> None:
        # uvicorn would go on with frames that have arrived after the one for which it aborts.
        if not self.transport.is_closing():
            super().handle_events()

    def handle_cont(self, event: Frame) -> None:
        # Empty parts would fill the lead's memory: the maximum size of a message does not count them.
        if self._takes_frame():
            super().handle_cont(event)

    def handle_pong(self, event: Frame) -> None:
        if self._takes_frame():
            super().handle_pong(event)

    def send_receive_event_to_app(self) -> None:
        # uvicorn would log a trace for text that is not UTF-8; as bytes it is refused, too.
        if self.curr_msg_data_type == "text" and not _is_utf8(self.frames):
            self.curr_msg_data_type = "bytes"
        if not self.close_sent:
            self.config.connections.stop_waiting(self.transport)
        super().send_receive_event_to_app()

    def handle_ping(self) -> None:
        if not self._takes_frame():
            return
        # uvicorn always answers; a peer that pings but never reads would fill the lead's memory with pongs.
        if self.transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
            self.transport.abort()
        else:
            super().handle_ping()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True  # a complete refusal, which uvicorn would log as an error
        if self.close_sent:
            self.config.connections.wait(self.transport, self)

    def _takes_frame(self) -> bool:
        """Return whether to handle a frame that is not a whole message; a flood of such frames ends the
        connection.
        """
        if self._more_frames.take(self.loop.time()):
            return True
        if not self.transport.is_closing():
            self.conn.fail(CloseCode.POLICY_VIOLATION, "too many frames")
            self.handle_parser_exception()
        return False

    def keepalive_timeout(self) -> None:
        """Abort instead of closing, because a peer that ignores pings also ignores the close frame."""
        super().keepalive_timeout()
        self.transport.abort()


def _is_utf8(parts: Sequence[bytes]) -> bool:
    try:
        b"".join(parts).decode()
    except UnicodeDecodeError:
        return False
    return True
