"""Request bodies: content type, size, nesting, encoding, and the time they may take to arrive."""

import asyncio
import codecs
import re
from collections.abc import Iterable

from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lead.http.error_responses import http_error
from lead.settings.limits import RequestLimits
from shared.protocol import MAX_BACK_MESSAGE_BYTES

_JSON = re.compile(r"application/(?:[\w.-]+\+)?json", re.IGNORECASE)
_MAX_INLINE_BYTES = 64 << 10
"""Larger bodies are checked in a thread, because that can take a tenth of a second."""
_BACKS_PATHS = {"/v1/speculation"}


class RefusedBodyError(Exception):
    """A body that is not accepted; `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class BodyMiddleware:
    """Reads the whole body before the application runs, and rejects bodies that are not accepted.

    Only JSON is accepted: pages of other origins cannot send it without permission (CORS). The connection
    discards the rest of a refused body, for as long as a body may take to arrive.
    """

    def __init__(self, app: ASGIApp, limits: RequestLimits) -> None:
        self._app = app
        self._limits = limits
        # Each level of a schema is two levels of JSON ({"properties": {"a": …}}) inside the body's own.
        self._max_nesting = 2 * limits.max_schema_depth + 16

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else None
        if headers is None or not has_body(headers):
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read(scope["path"], headers, receive)
        except RefusedBodyError as error:
            await http_error(error.status, str(error), "invalid_request_error")(scope, receive, send)
            return
        if body is not None:  # else the client has disconnected
            await self._app(scope, _replay(body, receive), send)

    async def _read(self, path: str, headers: Headers, receive: Receive) -> bytes | None:
        kind = headers.get("content-type", "").partition(";")[0].strip()
        if not _JSON.fullmatch(kind):
            raise RefusedBodyError(
                415, f"the body has to be JSON, with Content-Type: application/json, not {kind!r}"
            )
        max_bytes = MAX_BACK_MESSAGE_BYTES if path in _BACKS_PATHS else self._limits.max_body_bytes
        declared = headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > max_bytes:
            raise _too_large(max_bytes)
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                body = await _collect(receive, max_bytes)
        except TimeoutError:
            seconds = self._limits.body_seconds
            raise RefusedBodyError(408, f"the body did not arrive within {seconds:g} seconds") from None
        if body and len(body) <= _MAX_INLINE_BYTES:
            check_json(body, self._max_nesting)
        elif body:
            await asyncio.to_thread(check_json, body, self._max_nesting)
        return body


def has_body(headers: Headers) -> bool:
    """Whether a request has a body of at least one byte, according to its headers."""
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def check_json(body: bytes, max_nesting: int) -> None:
    """Raise RefusedBodyError unless `body` is JSON in UTF-8 with at most `max_nesting` nested containers.

    Python's own parser also accepts UTF-16, UTF-32 and unpaired surrogates, which an answer could not
    repeat, and any depth, which would exhaust the stack of code that walks the values.
    """
    try:
        value = from_json(body.removeprefix(codecs.BOM_UTF8), cache_strings=False)
    except ValueError as error:
        raise RefusedBodyError(400, f"the body is not valid JSON in UTF-8: {error}") from None
    containers, depth = _containers([value]), 0
    while containers:
        depth += 1
        if depth > max_nesting:
            raise RefusedBodyError(400, f"the body is nested deeper than {max_nesting} levels")
        containers = [
            child
            for each in containers
            for child in _containers(each.values() if isinstance(each, dict) else each)
        ]


def _containers(values: Iterable[object]) -> list[dict[str, object] | list[object]]:
    return [value for value in values if isinstance(value, dict | list)]


async def _collect(receive: Receive, max_bytes: int) -> bytes | None:
    """The body; None if the client disconnects. Raises RefusedBodyError once it exceeds `max_bytes`."""
    chunks: list[bytes] = []
    n_bytes = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunks.append(message.get("body", b""))
        n_bytes += len(chunks[-1])
        if n_bytes > max_bytes:
            raise _too_large(max_bytes)
        more = message.get("more_body", False)
    return b"".join(chunks)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns the whole body first."""
    waiting = [body]

    async def replay() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return replay


def _too_large(max_bytes: int) -> RefusedBodyError:
    return RefusedBodyError(413, f"the body has more than {max_bytes} bytes")
