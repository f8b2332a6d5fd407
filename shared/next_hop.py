"""Passing requests on to a process that may be killed at any moment: to the path, and with the headers, that
a client has sent.
"""

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from shared.errors import NotServingError
from shared.tls import trusting_nobody

RawHeaders = list[tuple[bytes, bytes]]
"""In any encoding."""

_HOP_BY_HOP = {
    *(b"connection", b"expect", b"keep-alive", b"proxy-authenticate", b"proxy-authorization"),
    *(b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
}
"""RFC 9110, 7.6.1, and 10.1.1 for Expect."""


def passed_on(headers: Iterable[tuple[bytes, bytes]], *replaced: bytes) -> RawHeaders:
    """The headers that are for the other end of the way, but for those that this hop sets by itself.

    Serve's proxy leaves white space at the end of a value, with which h11 sends nothing on.
    """
    kept = ((name.lower(), value.strip()) for name, value in headers)
    return [(name, value) for name, value in kept if name not in _HOP_BY_HOP and name not in replaced]


def target_of(scope: Mapping[str, Any]) -> bytes:
    """Path and query of an ASGI request as they were sent, for `NextHop.answer`.

    A URL of httpx would have another path, without `.` and `..`; so both ends decide on the same one.
    """
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    return path + (b"?" + query if query else b"")


@dataclass(frozen=True, slots=True)
class BegunAnswer:
    """first: bytes of the body, of which there are no more if `rest` is None."""

    status: int
    headers: httpx.Headers
    first: bytes
    rest: AsyncIterator[bytes] | None


class LocalTransport(httpx.AsyncHTTPTransport):
    """httpx's transport, which lets an error of anyio through: then a request is not known to have failed.

    Once connected, anyio asks the socket for its peer's name, and with uvloop there is no socket any more if
    the peer has closed it by then.
    """

    def __init__(self, **options: Any) -> None:
        """Those of httpx's transport."""
        super().__init__(verify=trusting_nobody(), **options)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises TransportError in that case, too."""
        try:
            return await super().handle_async_request(request)
        except AttributeError as error:
            raise httpx.ConnectError("the connection was closed as soon as it was made") from error


class NextHop:
    """Connections to the processes that answer."""

    def __init__(self, *, max_idle: int, connect_seconds: float) -> None:
        """max_idle: connections that wait for the next request."""
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
        """An answer of which something has arrived, or all if its length is known.

        Until then raises TransportError, or NotServingError if the process serves nobody: the request can be
        sent again.
        """
        extensions = {"target": target}
        sent = self._http.stream(method, url, headers=headers, content=body or None, extensions=extensions)
        async with sent as response:
            if NotServingError.HEADER in response.headers:
                raise NotServingError("it serves nobody")
            parts = response.aiter_raw()
            is_whole = "content-length" in response.headers
            first = b"".join([part async for part in parts]) if is_whole else await anext(parts, b"")
            yield BegunAnswer(response.status_code, response.headers, first, None if is_whole else parts)

    async def close(self) -> None:
        """After the last request."""
        await self._http.aclose()
