"""A log line for each request, with an id that is also sent to the client."""

import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lead.engine_client.answer_stats import RequestStats, current_request
from lead.http.error_responses import error_response

log = logging.getLogger("lead.requests")

_VALID_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_MAX_PATH_CHARACTERS = 200
_READS = {"GET", "HEAD"}
_HEALTH, _OF_HEALTH = {"/health", "/v1/health"}, {200, 503}
_OF_BACKS = "/v1/speculation"
"""The path to which backs without a WebSocket post several times a second."""
_SWITCHING_PROTOCOLS = 101
_BAD_REQUEST = 400
_CLIENT_CLOSED_REQUEST = 499  # nginx's code, for the log only


class AccessLogMiddleware:
    """Logs requests. As the outermost middleware, it logs unhandled exceptions, too, and answers 500 to them.

    Successful requests that change nothing (the page, /health, polling) are logged only with --log-level
    debug.
    """

    def __init__(
        self, app: ASGIApp, clock: Callable[[], float] = time.monotonic, *, shows_answers: bool = False
    ) -> None:
        """shows_answers: the terminal that shows the log shows each answer with its times, too."""
        self._app = app
        self._clock = clock
        self._shows_answers = shows_answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        record = RequestStats(request_id(Headers(scope=scope)))
        scope.setdefault("state", {})["request_id"] = record.id
        current_request.set(record)
        started_at = self._clock()
        response = _ResponseObserver(send, record.id)
        try:
            await self._app(scope, receive, response.send)
        except Exception as error:
            log.exception("%s failed, request %s", _what(scope), record.id)
            if not response.status:
                await error_response(error)(scope, receive, response.send)
        finally:
            self._write(scope, record, response.status, self._clock() - started_at)

    def _write(self, scope: Scope, record: RequestStats, status: int, seconds: float) -> None:
        if scope["type"] == "websocket" and status == _SWITCHING_PROTOCOLS:
            return  # a back: connecting and disconnecting have their own log lines
        status = status or _CLIENT_CLOSED_REQUEST
        milliseconds = round(seconds * 1e3)
        principal = scope["state"].get("principal")
        log.log(
            logging.DEBUG if self._is_dull(scope, record, status) else logging.INFO,
            "%s %d in %d ms%s, %s, request %s",
            _what(scope),
            status,
            milliseconds,
            record,
            principal or "anonymous",
            record.id,
            extra={
                "fields": lambda: (
                    asdict(record)
                    | {
                        "method": scope.get("method", "WEBSOCKET"),
                        "path": scope["path"][:_MAX_PATH_CHARACTERS],
                        "status": status,
                        "milliseconds": milliseconds,
                        "principal": principal and str(principal),
                    }
                )
            },
        )

    def _is_dull(self, scope: Scope, record: RequestStats, status: int) -> bool:
        method, path = scope.get("method"), scope["path"]
        if record.is_forwarded or (path in _HEALTH and status in _OF_HEALTH):
            return True
        if status >= _BAD_REQUEST:
            return False
        if self._shows_answers and record.n_sequences:
            return True
        return method in _READS or (method == "POST" and path == _OF_BACKS)


class _ResponseObserver:
    """Records the status of the response, and adds the request id to its headers."""

    def __init__(self, send: Send, id_: str) -> None:
        self.status = 0
        self._send = send
        self._header = (b"x-request-id", id_.encode())

    async def send(self, message: Message) -> None:
        # Streamed chunks cost only the first comparison.
        if message["type"] != "http.response.body" and not self.status:
            if message["type"] in {"http.response.start", "websocket.http.response.start"}:
                self.status = message["status"]
            elif message["type"] == "websocket.accept":
                self.status = _SWITCHING_PROTOCOLS
            message["headers"] = [*message.get("headers", ()), self._header]
        await self._send(message)


def request_id(headers: Headers) -> str:
    given = headers.get("x-request-id", "")
    return given if _VALID_ID.fullmatch(given) else secrets.token_hex(8)


def _what(scope: Scope) -> str:
    """Return method and path, escaped so that they cannot break the line or control a terminal."""
    path = quote(scope["path"][:_MAX_PATH_CHARACTERS], safe="/!$&'()*+,;=:@~")
    return f"{scope.get('method', 'WEBSOCKET')} {path}"
