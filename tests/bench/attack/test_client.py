import asyncio

import pytest

from bench.attack.client import send
from bench.attack.requests import Attack, Delivery

ANSWER = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


@pytest.fixture
async def server():
    """(port, what arrived): answers once it has read a whole request, or at the end of one."""
    received = bytearray()

    async def serve(reader, writer):
        while not received.endswith(b"end") and (data := await reader.read(1000)):
            received.extend(data)
        writer.write(ANSWER)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield listening.sockets[0].getsockname()[1], received
    listening.close()


@pytest.mark.parametrize("delivery", [Delivery.WHOLE, Delivery.SLOW])
async def test_a_body_arrives_whole_and_the_status_is_read(server, delivery):
    port, received = server
    outcome = await send("127.0.0.1", port, Attack("POST", "/x", "", b"the end", delivery=delivery))
    assert (outcome.status, outcome.failed) == (400, False)
    assert received.startswith(b"POST /x HTTP/1.1\r\n")
    assert received.endswith(b"\r\n\r\nthe end")
    assert b"Content-Length: 7" in received


async def test_a_body_that_is_cut_declares_more_than_it_has(server):
    port, _ = server
    outcome = await send("127.0.0.1", port, Attack("POST", "/x", "", b"the end", delivery=Delivery.CUT))
    assert outcome.status is None
