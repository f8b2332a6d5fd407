"""Clients that send or read too slowly, over real sockets, with limits of fractions of a second."""

import asyncio
import contextlib
import json
import socket

import pytest
from websockets.asyncio.client import connect

from lead.http.middleware import timeouts as module
from lead.http.middleware.timeouts import HttpProtocol, WriteTimeout
from lead.server.app import create_app
from lead.settings.keys import Key, Keyring, Principal, Role
from lead.settings.limits import RequestLimits
from tests.lead.serving import HANDSHAKE, app_served, hello
from tests.toy_engine import submit

PATIENT = {"header_seconds": 60.0, "body_seconds": 60.0, "write_seconds": 60.0}
SHORT = 0.1
SMALL_BUFFER = 4096
"""With a larger buffer even megabytes disappear in the kernel."""


pytestmark = pytest.mark.both_loops


@contextlib.asynccontextmanager
async def served(app, **times):
    """The port of `app` on a real server."""
    limits = RequestLimits(**PATIENT | times)
    async with app_served(app, limits, send_buffer=SMALL_BUFFER) as (port, _):
        yield port


@contextlib.asynccontextmanager
async def connected(port):
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
    client.connect(("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=client, limit=SMALL_BUFFER)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def drip(reader, writer, drop, until=None):
    """Send `drop` repeatedly until the connection ends or `until` has come back; return what came back."""
    received = b""
    while not reader.at_eof() and (until is None or until not in received):
        writer.write(drop)
        try:
            async with asyncio.timeout(0.01):
                received += await reader.read(1 << 16)
        except TimeoutError:
            pass
        except OSError:  # reset, because a drop came after the end
            return received + bytes(reader._buffer)
    return received


async def no_app(_scope, _receive, _send):
    raise AssertionError


def request(body, path="/tokenize", length=None):
    head = f"POST {path} HTTP/1.1\r\nHost: lead\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {length or len(body)}\r\n\r\n".encode() + body


# Headers


async def test_a_connection_that_sends_nothing_is_closed():
    async with served(no_app, header_seconds=SHORT) as port, connected(port) as (reader, _):
        assert await reader.read() == b""


async def test_a_header_that_arrives_too_slowly_is_answered_with_408():
    async with served(no_app, header_seconds=SHORT) as port, connected(port) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n")
        assert (await drip(reader, writer, b"x: y\r\n")).startswith(b"HTTP/1.1 408 ")


async def test_a_slow_second_header_on_the_same_connection_is_answered_with_408(lead):
    async with served(lead.app, header_seconds=0.5) as port, connected(port) as (reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\nHost: lead\r\n\r\n")
        await reader.readuntil(b'"ok"}')
        assert (await drip(reader, writer, b"G")).startswith(b"HTTP/1.1 408 ")


@pytest.fixture
def connections(monkeypatch):
    made = []
    original = HttpProtocol.connection_made

    def connection_made(self, transport):
        made.append(self)
        original(self, transport)

    monkeypatch.setattr(HttpProtocol, "connection_made", connection_made)
    return made


def event_after(monkeypatch, owner, name):
    """An event that is set when a function of `owner` has been called."""
    called = asyncio.Event()
    original = getattr(owner, name)

    def call(*arguments):
        original(*arguments)
        called.set()

    monkeypatch.setattr(owner, name, call)
    return called


async def test_no_timer_runs_while_a_request_is_answered(connections):
    timers = []

    async def app(_scope, _receive, send):
        await asyncio.sleep(0)  # the connection looks at its timers when it has handed the request on
        timers.extend(each._timer for each in connections)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async with served(app) as port, connected(port) as (reader, writer):
        writer.write(request(b"{}"))
        await reader.readuntil(b"\r\n\r\n")
    assert timers == [None]


async def test_no_timer_runs_for_a_websocket(lead, connections):
    async with served(lead.app) as port, connect(f"ws://127.0.0.1:{port}/v1/speculation"):
        assert [each._timer for each in connections] == [None]


UPGRADE = HANDSHAKE.removesuffix(b"\r\n")
UNREADABLE = {
    "with a body": UPGRADE + b"Content-Length: 1\r\n\r\na",
    "with a chunked body": UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n",
    "with too many headers": UPGRADE + b"x: y\r\n" * 130 + b"\r\n",
    "with a long header": UPGRADE + b"x: " + b"y" * 9000 + b"\r\n\r\n",
    "with a control character": UPGRADE + b"x: \x01\r\n\r\n",
    "of a long path": HANDSHAKE.replace(b"/v1", b"/" + b"v" * 9000),
    "as POST": HANDSHAKE.replace(b"GET", b"POST"),
}


@pytest.mark.parametrize("handshake", UNREADABLE.values(), ids=UNREADABLE)
async def test_a_handshake_that_the_library_cannot_read_is_refused_and_closed(handshake):
    async with served(no_app) as port, connected(port) as (reader, writer):
        writer.write(handshake)
        assert (await reader.read()).startswith(b"HTTP/1.1 4")


# Bodies


@pytest.mark.parametrize("more_body", [False, True], ids=["answered", "being answered"])
async def test_a_body_that_becomes_invalid_after_the_answer_began_leaves_no_trace(caplog, more_body):
    async def app(_scope, receive, send):
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "more_body": more_body})
        while (await receive())["type"] != "http.disconnect":
            pass

    async with served(app) as port, connected(port) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: lead\r\nTransfer-Encoding: chunked\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"no length\r\n")
        with contextlib.suppress(ConnectionError):
            await reader.read()
    assert [record for record in caplog.records if record.exc_info] == []


async def test_a_body_that_arrives_too_slowly_is_answered_with_408_in_openais_shape(lead):
    app = create_app(lead.app.state.services, limits=RequestLimits(body_seconds=SHORT))
    async with served(app) as port, connected(port) as (reader, writer):
        writer.write(request(b"{", length=10_000))
        answer = await drip(reader, writer, b" ", until=b"}}")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"the body did not arrive" in answer


async def test_the_rest_of_a_refused_body_has_a_time_limit(lead, monkeypatch):
    monkeypatch.setattr(module, "_GRACE_SECONDS", 0.0)
    keys = Keyring([Key(Principal(Role.CLIENT, "x"), "secret")])
    app = create_app(lead.app.state.services, keys=keys)
    async with served(app, body_seconds=SHORT) as port, connected(port) as (reader, writer):
        writer.write(request(b"{", length=1 << 20))
        assert (await drip(reader, writer, b" ")).startswith(b"HTTP/1.1 401 ")


# Answers


async def test_a_client_that_does_not_read_is_disconnected_and_its_answer_cancelled(lead):
    lead.will_say(*[("word " * 200, {})] * 400)
    lead.engine.pause_after = 399
    ask = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "return_speculation": True}
    async with served(lead.app, write_seconds=SHORT) as port, connected(port) as (reader, writer):
        reader._transport.pause_reading()
        writer.write(request(json.dumps(ask).encode(), "/v1/chat/completions"))
        await lead.engine.cancellation.wait()
    assert list(lead.sequences) == []


async def test_a_client_that_does_not_read_the_end_of_an_answer_is_disconnected(monkeypatch):
    lost = event_after(monkeypatch, HttpProtocol, "connection_lost")

    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 60_000})

    async with served(app, write_seconds=SHORT) as port, connected(port) as (reader, writer):
        reader._transport.pause_reading()
        writer.write(b"GET / HTTP/1.1\r\nHost: lead\r\nConnection: close\r\n\r\n")
        await lost.wait()


class Transport:
    """Counts unsent bytes, and records whether it was aborted."""

    n_unsent = 100
    aborted = False

    def get_write_buffer_size(self):
        return self.n_unsent

    def abort(self):
        self.aborted = True


@pytest.mark.parametrize(("n_later", "aborted"), [(100, True), (99, False)])
async def test_a_peer_that_reads_slowly_is_not_disconnected(n_later, aborted):
    transport = Transport()
    guard = WriteTimeout(transport, 60.0)
    guard.start()
    transport.n_unsent = n_later
    guard._check()
    assert transport.aborted == aborted
    guard.cancel()


async def test_a_back_that_does_not_read_is_disconnected(lead, monkeypatch):
    left = event_after(monkeypatch, lead.backs, "leave")
    text = hello(lead, name="deaf").model_dump_json().encode()
    frame = b"\x81\xfe" + len(text).to_bytes(2, "big") + bytes(4) + text  # RFC 6455, masked with zeros
    lead.sequences.create(submit(tokens=[5] * 200_000))
    async with served(lead.app, write_seconds=SHORT) as port, connected(port) as (reader, writer):
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        reader._transport.pause_reading()
        writer.write(frame)
        await left.wait()


async def test_a_peer_that_only_pings_and_reads_nothing_is_disconnected(monkeypatch):
    monkeypatch.setattr(module, "_MAX_UNREAD_BYTES", 1 << 16)

    async def app(_scope, receive, send):
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass

    pings = (b"\x89\xfd" + bytes(4) + bytes(125)) * 100  # RFC 6455, masked with zeros
    async with served(app) as port, connected(port) as (reader, writer):
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        reader._transport.pause_reading()
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(pings)
                await writer.drain()


@pytest.mark.parametrize("frame", [b"\x80\x80" + bytes(4), b"\x8a\x80" + bytes(4), b"\x00\x80" + bytes(4)])
async def test_a_flood_of_frames_that_are_no_messages_ends_the_connection(frame):
    """Frames: the last part of a message that never began, pongs, empty parts of an endless message."""
    closed_with = asyncio.get_running_loop().create_future()

    async def app(_scope, receive, send):
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] != "websocket.disconnect":
            pass
        closed_with.set_result(message["code"])

    async with served(app) as port, connected(port) as (reader, writer):
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        if frame[0] == 0:
            writer.write(b"\x01\x80" + bytes(4))
        writer.write(frame * 5000)
        assert await closed_with in {1002, 1008}
