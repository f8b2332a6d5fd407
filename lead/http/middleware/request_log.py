"""One line in the log per request, with an id that the client gets, too."""

import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lead.generation.record import RequestRecord, current
from lead.http.errors import error_response

log = logging.getLogger("lead.requests")

_SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_MOST_PATH_CHARACTERS = 200
_ROUTINE = {
    ("GET", "/health"),
    ("GET", "/v1/health"),
    ("GET", "/metrics"),
    ("GET", "/v1/speculation"),  # chats and pages
    ("POST", "/v1/speculation"),  # backs without a WebSocket
}
"""Asked every few seconds, or oftener, by programs: successes are logged with --log-level debug only."""
_CLIENT_CLOSED_REQUEST = 499  # nginx's code for the log; nobody reads the response


class RequestLog:
    """Middleware around the others; also answers for bugs, with 500, and puts their traces into the log."""

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        record = RequestRecord(request_id(Headers(scope=scope)))
        scope.setdefault("state", {})["request_id"] = record.id
        current.set(record)
        began_at = self._clock()
        answer = _Answer(send, record.id)
        try:
            await self._app(scope, receive, answer.send)
        except Exception as error:
            log.exception("%s failed, request %s", _what(scope), record.id)
            if not answer.status:
                await error_response(error)(scope, receive, answer.send)
        finally:
            self._write(scope, record, answer.status, self._clock() - began_at)

    def _write(self, scope: Scope, record: RequestRecord, status: int, seconds: float) -> None:
        if scope["type"] == "websocket" and status == _SWITCHING_PROTOCOLS:
            return  # a back: its joining and leaving have lines of their own
        status = status or _CLIENT_CLOSED_REQUEST
        milliseconds = round(seconds * 1e3)
        principal = scope["state"].get("principal")
        routine = (scope.get("method"), scope["path"]) in _ROUTINE and status < _BAD_REQUEST
        log.log(
            logging.DEBUG if routine else logging.INFO,
            "%s %d in %d ms%s, %s, request %s",
            _what(scope),
            status,
            milliseconds,
            record,
            principal or "nobody",
            record.id,
            extra={
                "fields": asdict(record)
                | {
                    "method": scope.get("method", "WEBSOCKET"),
                    "path": scope["path"][:_MOST_PATH_CHARACTERS],
                    "status": status,
                    "milliseconds": milliseconds,
                    "principal": principal and str(principal),
                }
            },
        )


_SWITCHING_PROTOCOLS = 101
_BAD_REQUEST = 400


class _Answer:
    """Looks at what is sent and adds the id to its headers."""

    def __init__(self, send: Send, id_: str) -> None:
        self.status = 0
        self._send = send
        self._header = (b"x-request-id", id_.encode())

    async def send(self, message: Message) -> None:
        # The first comparison is all that a streamed event costs.
        if message["type"] != "http.response.body" and not self.status:
            if message["type"] in {"http.response.start", "websocket.http.response.start"}:
                self.status = message["status"]
            elif message["type"] == "websocket.accept":
                self.status = _SWITCHING_PROTOCOLS
            message["headers"] = [*message.get("headers", ()), self._header]
        await self._send(message)


def request_id(headers: Headers) -> str:
    """The client's own, if it is sane, or a new one."""
    given = headers.get("x-request-id", "")
    return given if _SANE_ID.fullmatch(given) else secrets.token_hex(8)


def _what(scope: Scope) -> str:
    """Method and path; nothing in them can begin a new line or colour a terminal."""
    path = quote(scope["path"][:_MOST_PATH_CHARACTERS], safe="/!$&'()*+,;=:@~")
    return f"{scope.get('method', 'WEBSOCKET')} {path}"
