"""Forwards HTTP requests, with their path and headers, to a process that may be killed at any moment."""

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from shared.errors import NotServingError
from shared.tls import trusting_nothing

RawHeaders = list[tuple[bytes, bytes]]
"""Headers in any encoding."""

_HOP_BY_HOP = {
    *(b"connection", b"expect", b"keep-alive", b"proxy-authenticate", b"proxy-authorization"),
    *(b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
}
"""The headers for one hop only: RFC 9110, 7.6.1, and 10.1.1 for Expect."""


def end_to_end_headers(headers: Iterable[tuple[bytes, bytes]], *replaced: bytes) -> RawHeaders:
    """Return the end-to-end headers, except the names in `replaced`, which this hop sets itself.

    Ray Serve's proxy leaves white space at the end of a value, which h11 refuses to send.
    """
    kept = ((name.lower(), value.strip()) for name, value in headers)
    return [(name, value) for name, value in kept if name not in _HOP_BY_HOP and name not in replaced]


def target_of(scope: Mapping[str, Any]) -> bytes:
    """Return path and query of an ASGI request as they were sent, for `NextHop.answer`.

    An httpx URL would change the path (remove `.` and `..`), but both ends must see the same path.
    """
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    return path + (b"?" + query if query else b"")


@dataclass(frozen=True, slots=True)
class BegunAnswer:
    """The beginning of an answer. first: the first bytes of the body, which is complete if `rest` is None."""

    status: int
    headers: httpx.Headers
    first: bytes
    rest: AsyncIterator[bytes] | None


class LocalTransport(httpx.AsyncHTTPTransport):
    """httpx's transport, which translates an error of anyio that httpx lets through.

    After connecting, anyio asks the socket for its peer's name. With uvloop this fails if the peer has closed
    the connection by then.
    """

    def __init__(self, **options: Any) -> None:
        """options: the options of httpx's transport."""
        super().__init__(verify=trusting_nothing(), **options)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; raises TransportError also for anyio's error."""
        try:
            return await super().handle_async_request(request)
        except AttributeError as error:
            raise httpx.ConnectError("the connection was closed immediately") from error


class NextHop:
    """Connections to the processes that answer."""

    def __init__(self, *, max_idle: int, connect_seconds: float) -> None:
        """max_idle: the maximum number of connections that wait for the next request."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=max_idle)
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=connect_seconds),  # an answer may take any time
            transport=LocalTransport(limits=limits, trust_env=False),
            trust_env=False,
        )
        self._http.headers.clear()  # what a client has not said is not said for it

    @contextlib.asynccontextmanager
    async def answer(
        self, method: str, url: str, target: bytes, headers: RawHeaders, body: bytes
    ) -> AsyncIterator[BegunAnswer]:
        """Yield a response whose first part has arrived, or all of it if its length is known.

        Raises TransportError, or NotServingError if the process does not serve. No part has arrived then, so
        the request can be sent again.
        """
        extensions = {"target": target}
        sent = self._http.stream(method, url, headers=headers, content=body or None, extensions=extensions)
        async with sent as response:
            if NotServingError.HEADER in response.headers:
                raise NotServingError("no program serves it")
            parts = response.aiter_raw()
            is_whole = "content-length" in response.headers
            first = b"".join([part async for part in parts]) if is_whole else await anext(parts, b"")
            yield BegunAnswer(response.status_code, response.headers, first, None if is_whole else parts)

    async def close(self) -> None:
        """Close all connections; call after the last request."""
        await self._http.aclose()
