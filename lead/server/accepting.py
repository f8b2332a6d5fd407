"""Accepts connections without losing any when descriptors run out.

When a process has no descriptor left, libuv (uvloop) resets all connections that wait in the socket's queue.
Here the connections stay in the queue until a descriptor is free.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable

_PAUSE_SECONDS = 0.1
"""The pause before another attempt to accept a connection for which descriptors or memory were lacking."""


class Acceptor:
    """Accepts the connections of a listening socket, which it owns."""

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None = None,
        handshake_seconds: float | None = None,
    ) -> None:
        """handshake_seconds: the time limit for a TLS handshake."""
        self._listener = listener
        self._make_protocol = make_protocol
        self._tls = tls
        self._handshake_seconds = handshake_seconds
        self._connecting: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        listener.setblocking(False)
        self._watch()

    @property
    def is_connecting(self) -> bool:
        """True if a connection was accepted but not yet passed to its protocol."""
        return bool(self._connecting)

    def close(self) -> None:
        """Stop accepting; connections in the queue are left to other processes with the same socket."""
        if self._pause:
            self._pause.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)
            self._listener.close()

    def _watch(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):  # another process was faster
            return
        except OSError:  # the queue stays readable, so this would be called again at once
            self._loop.remove_reader(self._listener)
            self._pause = self._loop.call_later(_PAUSE_SECONDS, self._watch)
            return
        connection.setblocking(False)
        connecting = self._loop.create_task(self._connect(connection))
        self._connecting.add(connecting)
        connecting.add_done_callback(self._connecting.discard)

    async def _connect(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the peer has left, or its handshake failed
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_seconds,
            )
