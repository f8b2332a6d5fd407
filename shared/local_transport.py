"""HTTP to a process that may be killed at any moment, and that decides on a path as a client has sent it."""

from collections.abc import Mapping
from typing import Any

import httpx

from shared.tls import trusting_nobody


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


def target_of(scope: Mapping[str, Any]) -> bytes:
    """Path and query of an ASGI request as they were sent, for httpx's extension `target`.

    A URL of httpx would have another path, without `.` and `..`; so both ends decide on the same one.
    """
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    return path + (b"?" + query if query else b"")
