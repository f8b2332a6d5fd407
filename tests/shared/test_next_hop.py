"""A client's request is passed on. A process that has not answered is known to be gone."""

import httpx
import pytest

from shared.next_hop import LocalTransport, end_to_end_headers, target_of


async def test_a_socket_that_is_closed_before_anybody_looks_at_it_is_a_transport_error(monkeypatch):
    async def ask_for_the_peer_of_nothing(*_):
        socket = None
        return socket.getpeername()

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", ask_for_the_peer_of_nothing)
    async with httpx.AsyncClient(transport=LocalTransport()) as client:
        with pytest.raises(httpx.ConnectError, match="closed immediately"):
            await client.get("http://127.0.0.1/")


def test_a_path_is_sent_as_it_came():
    assert target_of({"raw_path": b"/x/../%2e/y", "query_string": b""}) == b"/x/../%2e/y"
    assert target_of({"raw_path": b"//", "query_string": b"model=%ff"}) == b"//?model=%ff"


def test_headers_about_the_connection_and_those_of_the_hop_are_not_passed_on():
    """Host is passed on: a lead refuses other names. White space at the ends cannot be sent."""
    given = [
        (b"Host", b"page.example"),
        (b"TE", b"a"),
        (b"Proxy-Connection", b"a"),
        (b"Content-Length", b"1"),
    ]
    kept = [(b"host", b"page.example"), (b"x-mine", b"a b")]
    assert end_to_end_headers([*given, (b"X-Mine", b"a b \t")], b"content-length") == kept
