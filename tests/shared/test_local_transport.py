"""A connection that is lost as soon as it is made is an error of the transport, whatever anyio says."""

import httpx
import pytest

from shared.local_transport import LocalTransport, target_of


async def test_a_socket_that_is_closed_before_anybody_looks_at_it_is_a_transport_error(monkeypatch):
    async def ask_for_the_peer_of_nothing(*_):
        socket = None
        return socket.getpeername()

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", ask_for_the_peer_of_nothing)
    async with httpx.AsyncClient(transport=LocalTransport()) as client:
        with pytest.raises(httpx.ConnectError, match="closed as soon as"):
            await client.get("http://127.0.0.1/")


def test_a_path_is_sent_as_it_came():
    assert target_of({"raw_path": b"/x/../%2e/y", "query_string": b""}) == b"/x/../%2e/y"
    assert target_of({"raw_path": b"//", "query_string": b"model=%ff"}) == b"//?model=%ff"
