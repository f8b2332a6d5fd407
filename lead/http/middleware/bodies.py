"""The bodies of requests: what they are, how large, how deep, and how long they may take to arrive."""

import asyncio
import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lead.http.errors import http_error
from lead.http.middleware.nesting import is_deeper
from lead.http.middleware.unicode import is_unicode
from lead.settings.limits import Bounds
from shared.protocol import MAX_BACK_MESSAGE_BYTES

_JSON = re.compile(r"application/(?:[\w.-]+\+)?json", re.IGNORECASE)
_AT_ONCE_BYTES = 64 << 10
"""Larger bodies are looked through in a thread: it could take a tenth of a second."""
_BACKS_PATHS = {"/v1/speculation"}


class RefusedBodyError(Exception):
    """A body that is not to be read; `status` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Bodies:
    """Middleware that reads a body before anybody asks for it, and hands it on whole or answers for it.

    Pages of other origins cannot send JSON without being allowed to (CORS), so JSON is asked for. What is
    left of a refused body the connection throws away, for as long as a body may take.
    """

    def __init__(self, app: ASGIApp, bounds: Bounds) -> None:
        self._app = app
        self._bounds = bounds
        # Each level of a schema is two of JSON ({"properties": {"a": …}}), and it stands inside the body.
        self._most_nesting = 2 * bounds.max_schema_depth + 16

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
        if body is not None:  # else the client has gone
            await self._app(scope, _replay(body, receive), send)

    async def _read(self, path: str, headers: Headers, receive: Receive) -> bytes | None:
        kind = headers.get("content-type", "").partition(";")[0].strip()
        if not _JSON.fullmatch(kind):
            raise RefusedBodyError(
                415, f"the body has to be JSON, with Content-Type: application/json, not {kind!r}"
            )
        most = MAX_BACK_MESSAGE_BYTES if path in _BACKS_PATHS else self._bounds.max_body_bytes
        declared = headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > most:
            raise _too_large(most)
        try:
            async with asyncio.timeout(self._bounds.body_seconds):
                body = await _collect(receive, most)
        except TimeoutError:
            seconds = self._bounds.body_seconds
            raise RefusedBodyError(408, f"the body did not arrive within {seconds:g} seconds") from None
        if body is not None:
            await self._check(body)
        return body

    async def _check(self, body: bytes) -> None:
        if len(body) <= _AT_ONCE_BYTES:
            self._look_through(body)
        else:
            await asyncio.to_thread(self._look_through, body)

    def _look_through(self, body: bytes) -> None:
        if not is_unicode(body):
            raise RefusedBodyError(400, "the body is not UTF-8, or has half of a surrogate pair in it")
        if is_deeper(body, self._most_nesting):
            raise RefusedBodyError(400, f"the body is nested deeper than {self._most_nesting} levels")


def has_body(headers: Headers) -> bool:
    """Whether a request has a body; one of no bytes is none."""
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


async def _collect(receive: Receive, most: int) -> bytes | None:
    """The body; None if the client leaves. Raises RefusedBodyError once it has more than `most` bytes."""
    chunks: list[bytes] = []
    n_bytes = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunks.append(message.get("body", b""))
        n_bytes += len(chunks[-1])
        if n_bytes > most:
            raise _too_large(most)
        more = message.get("more_body", False)
    return b"".join(chunks)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body first."""
    waiting = [body]

    async def replay() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return replay


def _too_large(most: int) -> RefusedBodyError:
    return RefusedBodyError(413, f"the body has more than {most} bytes")
