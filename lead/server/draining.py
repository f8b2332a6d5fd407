"""The end of the lead's HTTP server: first answers are completed, with the backs' help, then all connections
end.
"""

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from email.utils import formatdate
from typing import Any, Protocol

import uvicorn
from fastapi import FastAPI
from uvicorn.server import ServerState

from lead.http.middleware.timeouts import HttpProtocol, ServerConfig, WebSocketProtocol
from lead.server.accepting import Acceptor
from lead.settings.lead_settings import LeadSettings
from shared.tls import check_certificate

log = logging.getLogger("lead")

CLOSE_SECONDS = 3
"""The time that connections may take to close after the last answer has ended."""
_ABORT_SECONDS = 2
"""The part of CLOSE_SECONDS after which connections are aborted if their peers have not read the rest."""
_LOOK_SECONDS = 0.1
"""The polling interval, as in uvicorn, which has no event for the end of a connection."""


class RunningAnswers(Protocol):
    def __len__(self) -> int:
        """Return the number of running answers."""

    def fail_all(self, reason: str) -> None:
        """End all running answers with an error."""


class _DatedState(ServerState):
    """uvicorn's state, with a date made when a response begins, so that no timer is needed."""

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"date", formatdate(usegmt=True).encode()), *self._others]

    @default_headers.setter
    def default_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        self._others = headers


class DrainingServer(uvicorn.Server):
    """uvicorn's server, extended: answers still running after the drain time get an error event.

    The first signal starts the drain, the second ends it, the third closes connections at once.
    """

    def __init__(
        self,
        app: FastAPI,
        settings: LeadSettings,
        answers: RunningAnswers,
        *,
        on_stopping: Callable[[], None] = lambda: None,
        on_drain: Callable[[], None],
        on_drained: Callable[[], Awaitable[None]],
    ) -> None:
        """Make the server; raises ConfigError for a certificate that cannot be used.

        on_stopping: called first at each signal. on_drain: ends requests that would wait for ever.
        on_drained: ends the parts that serve running answers.

        For --drain-notice-seconds before the drain, connections are still accepted, while /health reports
        that this server is about to end.
        """
        self._ending = asyncio.Event()  # set by the first signal
        super().__init__(_config(app, settings))
        self.server_state = _DatedState()
        self.servers = []  # uvicorn's asyncio servers: none, as acceptors take their place
        self._acceptors: list[Acceptor] = []  # one for each listening socket
        self.accepting = asyncio.Event()
        """This event is set once connections are accepted."""
        self._settings = settings
        self._answers = answers
        self._on_stopping = on_stopping
        self._on_drain = on_drain
        self._on_drained = on_drained
        self._app_state = app.state
        self._is_hurried = False  # a second signal has arrived: running answers are cut
        self._is_replaced = False  # another lead accepts connections on the socket

    @property
    def should_exit(self) -> bool:
        return self._ending.is_set()

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        if value:
            self._ending.set()

    async def main_loop(self) -> None:
        """Wait for the end. uvicorn's own loop wakes up ten times a second, to check for the end and to write
        the Date header.
        """
        await self._ending.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, but with a time limit for TLS handshakes: uvicorn counts connections only
        after the handshake.
        """
        for listener in sockets or []:
            self.listen_also(listener, self.config.ssl, {})
        self.started = True
        self.accepting.set()

    def listen_also(
        self, listener: socket.socket, tls: ssl.SSLContext | None, state: dict[str, Any]
    ) -> Acceptor:
        """Accept connections on another socket, too; `state`: the ASGI state of each request there."""
        listener.listen(self.config.backlog)
        acceptor = Acceptor(
            listener,
            lambda: HttpProtocol(self.config, self.server_state, app_state=state),
            tls,
            self._settings.limits.header_seconds if tls else None,
        )
        self._acceptors.append(acceptor)
        return acceptor

    def disconnect(self, number: int) -> None:
        """Close the connections whose last request was made by the principal with this number."""
        for connection in list(self.server_state.connections):
            scope = getattr(connection, "scope", None) or {}
            principal = scope.get("state", {}).get("principal")
            if principal is not None and principal.number == number:
                connection.transport.abort()

    def replace(self) -> None:
        """Stop accepting, because another process accepts now, and end when all answers have ended."""
        self._stop_accepting()
        self._is_replaced = self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, then shut down as uvicorn does, which disconnects backs with code 1012."""
        # A client that sends its next request on a connection learns that it should open another one.
        self.server_state.default_headers = [(b"connection", b"close")]
        if self._is_replaced:
            await self._wait_for_connections(None)
        else:
            await self._give_notice()
        self._on_drain()
        self._close_to_newcomers()
        await self._drain()
        self._answers.fail_all("the server is shutting down")
        await self._on_drained()
        aborting = asyncio.get_running_loop().call_later(_ABORT_SECONDS, self._abort)
        await super().shutdown(sockets)
        aborting.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals as uvicorn does, but without raising them again at the end: the engine is still to
        be stopped.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.on_signal)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def on_signal(self) -> None:
        """Go one step further towards the end, as the class describes."""
        self._on_stopping()
        if self._is_hurried:
            self.force_exit = True
            self._abort()
        self._is_hurried = self.should_exit
        self.should_exit = True

    def _stop_accepting(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()

    def _close_to_newcomers(self) -> None:
        """Accept no new connections, and no further requests on existing ones. Backs stay connected."""
        self._stop_accepting()
        for connection in list(self.server_state.connections):
            if not isinstance(connection, WebSocketProtocol):
                connection.shutdown()

    async def _drain(self) -> None:
        if self._answers and not self._is_hurried:
            log.info(
                "stopping: %s up to %g s to finish (--drain-seconds). Press Ctrl-C again to stop at once",
                "1 answer has" if len(self._answers) == 1 else f"{len(self._answers)} answers have",
                self._settings.drain_seconds,
            )
        await self._wait_for_connections(self._settings.drain_seconds)

    async def _give_notice(self) -> None:
        self._app_state.is_leaving = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_notice_seconds):
                while not self._is_hurried:  # noqa: ASYNC110 - see _LOOK_SECONDS
                    await asyncio.sleep(_LOOK_SECONDS)

    async def _wait_for_connections(self, seconds: float | None) -> None:
        """Wait until all connections of clients have ended; idle connections end after the usual time.
        seconds: the maximum time; None: no limit.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._is_answering() and not self._is_hurried:  # noqa: ASYNC110 - see _LOOK_SECONDS
                    await asyncio.sleep(_LOOK_SECONDS)

    def _is_answering(self) -> bool:
        return any(each.is_connecting for each in self._acceptors) or any(
            not isinstance(each, WebSocketProtocol) for each in self.server_state.connections
        )

    def _abort(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def _config(app: FastAPI, settings: LeadSettings) -> ServerConfig:
    limits, security = settings.limits, settings.security
    if security.ssl_cert_file and security.ssl_key_file:
        check_certificate(security.ssl_cert_file, security.ssl_key_file)
    return ServerConfig(
        app,
        limits,
        lifespan="off",
        workers=1,  # otherwise uvicorn reads WEB_CONCURRENCY, which hosting platforms set
        log_config=None,
        access_log=False,
        ssl_certfile=security.ssl_cert_file,
        ssl_keyfile=security.ssl_key_file,
        server_header=False,
        proxy_headers=False,  # any client on this machine could choose its address
        ws_ping_interval=limits.ping_seconds,
        ws_ping_timeout=limits.ping_seconds,
        ws_per_message_deflate=True,  # a draft repeats most of the one before it
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )
