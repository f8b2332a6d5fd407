import asyncio
import contextlib

import pytest

from lab.parts.link import Link


@contextlib.asynccontextmanager
async def echo():
    """A server that sends its input back; yields its port."""

    async def answer(reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
async def link():
    async with echo() as port, Link("127.0.0.1", port) as link:
        yield link


@contextlib.asynccontextmanager
async def connected(link):
    """A connection through the link that has been used once."""
    host, _, port = link.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"first")
    assert await reader.readexactly(5) == b"first"
    yield reader, writer
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@pytest.fixture
async def connection(link):
    async with connected(link) as connection:
        yield connection


async def test_bytes_arrive_in_order_even_in_pieces(link, connection):
    reader, writer = connection
    link.max_bytes = 7
    delays = iter([0.004, 0.0, 0.002] * 200)
    link.delay = lambda: next(delays)
    message = bytes(range(256)) * 2
    writer.write(message)
    assert await reader.readexactly(len(message)) == message


async def test_a_cut_resets_the_connection_but_not_the_link(link, connection):
    reader, _ = connection
    link.cut()
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    async with connected(link) as (again, writer):
        writer.write(b"again")
        assert await again.readexactly(5) == b"again"


async def test_what_goes_into_a_black_hole_arrives_when_it_is_gone(link, connection):
    reader, writer = connection
    link.stop_flow()
    writer.write(b"lost?")
    arriving = asyncio.ensure_future(reader.readexactly(5))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not arriving.done()
    link.restore()
    assert await arriving == b"lost?"


class Source:
    """Chunks that arrive at once, then the end."""

    def __init__(self, chunks):
        self._chunks = iter(chunks)

    async def read(self, _n):
        return next(self._chunks, b"")


class Sink(list):
    write = list.append

    async def drain(self):
        await asyncio.sleep(0)

    def close(self):
        pass


async def test_chunks_that_leave_together_do_not_wait_for_each_other(link):
    """A hundred chunks arrive after one delay. A hundred delays would take twice the allowed time."""
    link.delay = lambda: 0.2
    sink = Sink()
    async with asyncio.timeout(10):
        await link.carry(Source([b"x"] * 100), sink)
    assert sink == [b"x"] * 100
