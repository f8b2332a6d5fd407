"""No connection is lost while descriptors are scarce."""

import asyncio
import os
import socket

import pytest

from lead.server import accepting
from lead.server.accepting import Acceptor

pytestmark = pytest.mark.both_loops


class Greeter(asyncio.Protocol):
    def connection_made(self, transport):
        transport.write(b"hello")
        transport.close()


@pytest.fixture
async def address():
    """The address of an acceptor."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    acceptor = Acceptor(listener, Greeter)
    yield address
    acceptor.close()


async def turns():
    """Wait as many turns of the loop as accepting takes."""
    for _ in range(10):
        await asyncio.sleep(0)


async def greeting(client):
    async with asyncio.timeout(60):
        return await asyncio.get_running_loop().sock_recv(client, 10)


async def test_who_connects_while_there_is_no_descriptor_is_served_when_there_is_one(
    address, all_in_use, monkeypatch
):
    monkeypatch.setattr(accepting, "_PAUSE_SECONDS", 0.001)
    with socket.socket() as first, socket.socket() as second:
        opened = all_in_use()
        for client in (first, second):
            client.connect(address)
            client.setblocking(False)
        await turns()
        os.close(opened.pop())
        assert await greeting(first) == await greeting(second) == b"hello"


async def test_one_who_has_left_before_it_was_accepted_disturbs_nobody(address):
    with socket.create_connection(address):
        pass
    with socket.create_connection(address) as client:
        client.setblocking(False)
        assert await greeting(client) == b"hello"


async def test_closed_while_it_waits_for_a_descriptor_it_leaves_the_queue_to_others(all_in_use):
    listener = socket.create_server(("127.0.0.1", 0))
    with listener.dup() as others, socket.socket() as client:
        acceptor = Acceptor(listener, Greeter)
        opened = all_in_use()
        client.connect(listener.getsockname())
        await turns()
        acceptor.close()
        os.close(opened.pop())
        others.setblocking(False)
        accepted, peer = others.accept()
        accepted.close()
        assert peer == client.getsockname()
