"""A connection that is lost as soon as it is made is an error of the transport, whatever anyio says."""

import httpx
import pytest

from shared.local_transport import LocalTransport


async def test_a_socket_that_is_closed_before_anybody_looks_at_it_is_a_transport_error(monkeypatch):
    async def ask_for_the_peer_of_nothing(*_):
        socket = None
        return socket.getpeername()

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", ask_for_the_peer_of_nothing)
    async with httpx.AsyncClient(transport=LocalTransport()) as client:
        with pytest.raises(httpx.ConnectError, match="closed as soon as"):
            await client.get("http://127.0.0.1/")
