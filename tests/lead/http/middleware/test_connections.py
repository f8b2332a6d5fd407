"""At the limit on open files new connections replace idle ones, and /health is always served."""

import asyncio
import contextlib

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidMessage

from lead.http.middleware import connections as module
from lead.http.middleware.connections import ConnectionLimit, Room
from lead.settings.limits import RequestLimits
from tests.lead.http.middleware.asgi import asgi_request
from tests.lead.serving import HANDSHAKE, app_served, hello

OTHER_FILES = module._N_FREE + module._N_OVER
POST = b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nHost: lead\r\n\r\n"


class Transport:
    def __init__(self):
        self.aborted = False

    def abort(self):
        self.aborted = True


class Kernel:
    """Connections, and `n_other` open descriptors of other things."""

    def __init__(self, n_descriptors):
        self.limit = ConnectionLimit(n_descriptors, lambda: len(self.open) + self.n_other, lambda: self.now)
        self.now = 0.0
        self.open = []
        self.n_other = 0

    def connect(self):
        transport = Transport()
        self.open.append(transport)
        room = self.limit.make_room(len(self.open))
        for each in self.open:
            if each.aborted:
                self.limit.end(each)
        self.open = [each for each in self.open if not each.aborted]
        return transport, room


def waiting(kernel, n):
    transports = [kernel.connect()[0] for _ in range(n)]
    for each in transports:
        kernel.limit.wait(each, "head")
    return transports


@pytest.mark.parametrize("n_other", [0, 2], ids=["", "and descriptors are in use for other things"])
def test_a_new_connection_takes_the_place_of_the_one_that_has_waited_longest(n_other):
    kernel = Kernel(OTHER_FILES + 3 + n_other)
    kernel.n_other = n_other
    first, second, third = waiting(kernel, 3)
    _, room = kernel.connect()
    assert room is Room.FREE
    assert [first.aborted, second.aborted, third.aborted] == [True, False, False]


@pytest.mark.parametrize(
    ("waits_for", "was_served", "waits_longest"),
    [("head", True, False), ("head", False, True), ("body", False, False)],
    ids=["it was served meanwhile", "it sends its request byte by byte", "it has come to its body"],
)
def test_a_connection_that_has_got_further_waits_anew(waits_for, was_served, waits_longest):
    kernel = Kernel(OTHER_FILES + 2)
    first, second = waiting(kernel, 2)
    if was_served:
        kernel.limit.stop_waiting(first)
    kernel.limit.wait(first, waits_for)
    kernel.connect()
    assert (first.aborted, second.aborted) == (waits_longest, not waits_longest)


def test_any_number_of_new_connections_stays_within_the_limit():
    kernel = Kernel(OTHER_FILES + 10)
    for _ in range(1000):
        transport, room = kernel.connect()
        kernel.limit.wait(transport, "head")
        assert room is Room.FREE
        assert len(kernel.open) <= 10


def test_connections_that_are_being_answered_are_never_closed():
    kernel = Kernel(OTHER_FILES + 4)
    answered = [kernel.connect()[0] for _ in range(4)]
    rooms = [kernel.connect()[1] for _ in range(module._N_OVER)]
    assert set(rooms) == {Room.SCARCE}
    assert kernel.connect()[1] is Room.NONE
    assert not any(each.aborted for each in answered)


def test_descriptors_that_other_things_take_or_free_later_are_noticed():
    kernel = Kernel(OTHER_FILES + 4)
    for n_other, n_connections in [(0, 4), (2, 2), (0, 4)]:
        kernel.n_other = n_other
        kernel.now += module._COUNT_SECONDS
        for _ in range(4):
            waiting(kernel, 1)
        assert len(kernel.open) == n_connections


def test_a_connection_that_is_being_closed_makes_room_for_one_only():
    limit = ConnectionLimit(OTHER_FILES + 2, lambda: 1, lambda: 0.0)
    first, second = Transport(), Transport()
    for n_connections, transport in enumerate((first, second), start=1):
        assert limit.make_room(n_connections) is Room.FREE
        limit.wait(transport, "head")
    assert limit.make_room(3) is limit.make_room(4) is Room.FREE  # the first two have not ended yet
    assert first.aborted
    assert second.aborted
    assert limit.make_room(5) is Room.SCARCE


def test_the_log_says_once_that_there_are_too_many(caplog):
    kernel = Kernel(OTHER_FILES + 1)
    for _ in range(20):
        waiting(kernel, 1)
    assert [record.message[:22] for record in caplog.records] == ["the limit on open file"]


@contextlib.asynccontextmanager
async def served(app, n_connections):
    limits = RequestLimits(header_seconds=3600, body_seconds=3600)
    n_descriptors = n_connections + OTHER_FILES
    async with app_served(app, limits, n_descriptors, timeout_keep_alive=3600) as (port, server):
        server.config.connections._count = lambda: len(server.server_state.connections)  # no other files
        yield port


@contextlib.asynccontextmanager
async def sending(port, text):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    try:
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def asked(port, method="GET", path="/health"):
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.request(method, f"http://127.0.0.1:{port}{path}")


async def test_beyond_the_limit_only_health_is_answered(lead):
    app = module.only_health(lead.app)
    for method, status in {"GET": 200, "HEAD": 200, "POST": 503, "WEBSOCKET": 503}.items():
        assert (await asgi_request(app, method, "/health"))[0] == status
    assert (await asgi_request(app, "GET", "/props"))[0] == 503


@pytest.mark.both_loops
@pytest.mark.parametrize(
    ("text", "answer"),
    [(b"", b""), (HEALTH[:25], b""), (POST + b"{", b""), (HEALTH, b'"ok"}')],
    ids=["nothing", "part of a head", "part of a body", "kept alive after its answer"],
)
async def test_an_idle_connection_makes_room_for_a_request(lead, text, answer):
    async with served(lead.app, 1) as port, sending(port, text) as reader:
        if answer:
            await reader.readuntil(answer)
        assert (await asked(port)).status_code == 200
        assert await reader.read() == b""


@pytest.mark.both_loops
async def test_a_connection_whose_client_does_not_read_the_end_of_an_answer_makes_room_too():
    async def app(scope, _receive, send):
        body = b"x" * (0 if scope["path"] == "/tokenize" else 16 << 20)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    request = b"GET / HTTP/1.1\r\nHost: lead\r\nConnection: close\r\n\r\n"
    async with served(app, 1) as port, sending(port, request) as reader:
        await reader.readuntil(b"\r\n\r\n")
        assert (await asked(port, "POST", "/tokenize")).status_code != 503


@pytest.mark.both_loops
async def test_a_websocket_without_a_message_makes_room_too(lead):
    async with served(lead.app, 1) as port, connect(f"ws://127.0.0.1:{port}/v1/speculation") as back:
        assert (await asked(port, "POST", "/tokenize")).status_code != 503
        await back.wait_closed()


@pytest.mark.both_loops
async def test_a_websocket_that_is_being_closed_makes_room_too(lead):
    async with served(lead.app, 1) as port, sending(port, HANDSHAKE) as reader:
        await reader.readuntil(b"\r\n\r\n")
        reader._transport.write(b"\x82\x80" + bytes(4))  # RFC 6455: an empty binary message, which is refused
        await reader.readuntil(b"text frames")
        assert (await asked(port, "POST", "/tokenize")).status_code != 503


@pytest.mark.both_loops
async def test_a_back_that_has_joined_keeps_its_place(lead):
    async with served(lead.app, 1) as port, connect(f"ws://127.0.0.1:{port}/v1/speculation") as back:
        await back.send(hello(lead).model_dump_json())
        assert "welcome" in await back.recv()
        assert (await asked(port, "POST", "/tokenize")).status_code == 503


@pytest.fixture
async def answering(lead):
    """A server with room for one connection, which is waiting for its answer."""
    lead.engine.hold()
    body = b'{"prompt": "Hi", "stream": true}'
    head = b"POST /completion HTTP/1.1\r\nHost: lead\r\nContent-Type: application/json\r\nContent-Length: %d"
    async with served(lead.app, 1) as port, sending(port, head % len(body) + b"\r\n\r\n" + body) as reader:
        await lead.engine.submission.wait()
        yield port, reader
        lead.engine.release()


@pytest.mark.both_loops
async def test_while_all_are_being_answered_health_is_answered_too(answering):
    port, _ = answering
    assert (await asked(port)).json() == {"status": "ok"}


@pytest.mark.both_loops
async def test_while_all_are_being_answered_other_requests_are_told_to_come_again(answering):
    port, _ = answering
    refusal = await asked(port, "POST", "/tokenize")
    assert (refusal.status_code, refusal.headers["connection"]) == (503, "close")
    assert int(refusal.headers["retry-after"]) > 0
    assert "too many connections" in refusal.json()["error"]["message"]


@pytest.mark.both_loops
async def test_while_all_are_being_answered_a_back_cannot_come_in(answering):
    port, _ = answering
    with pytest.raises((InvalidMessage, OSError, EOFError)):
        await connect(f"ws://127.0.0.1:{port}/v1/speculation", proxy=None)
