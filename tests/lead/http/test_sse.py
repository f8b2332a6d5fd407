import asyncio

import pytest

from lead.http import sse
from lead.http.client_gone import ClientGoneError
from lead.http.sse import Renderer, event_stream
from shared.errors import RequestError, UnavailableError
from tests.lead.http.event_streams import Connection


@pytest.fixture
async def connection():
    return Connection()


class Echo(Renderer):
    """A renderer for updates that are lists of events."""

    def render(self, update):
        return update

    def finish(self):
        return ["[DONE]"]

    def whole(self, answers):
        return answers

    def error(self, error):
        yield {"error": str(error)}


async def stream(connection, updates):
    return await event_stream(connection.request, updates, Echo())


async def read(connection, response):
    """The body that the response sends."""
    bodies = []

    async def send(message):
        bodies.append(message.get("body", b""))

    await response({"type": "http"}, connection.receive, send)
    return b"".join(bodies).decode()


async def produce(*items, closed=None):
    try:
        for item in items:
            if isinstance(item, Exception):
                raise item
            if isinstance(item, asyncio.Event):
                await item.wait()
                continue
            yield item
    finally:
        if closed:
            closed.set()


async def test_events_are_lines_of_json_and_then_what_finishes_them(connection):
    response = await stream(connection, produce([{"a": "é\n"}], [], [{"b": 1}, {"c": 2}]))
    lines = ['{"a":"é\\n"}', '{"b":1}', '{"c":2}', "[DONE]"]
    assert await read(connection, response) == "".join(f"data: {line}\n\n" for line in lines)


async def test_an_event_with_a_type_is_named_by_it(connection):
    response = await stream(connection, produce([{"type": "ping"}]))
    assert (await read(connection, response)).startswith('event: ping\ndata: {"type":"ping"}\n\n')


async def test_proxies_are_told_not_to_buffer(connection):
    response = await stream(connection, produce([{}]))
    assert response.headers["X-Accel-Buffering"] == "no"
    assert response.headers["Content-Type"].startswith("text/event-stream")
    await read(connection, response)


@pytest.mark.parametrize("before", [[], [[]]])
async def test_an_error_before_the_first_event_is_raised(connection, before):
    with pytest.raises(RequestError):
        await stream(connection, produce(*before, RequestError("no", "prompt")))


async def test_a_later_error_is_the_last_event(connection):
    response = await stream(connection, produce([{"a": 1}], UnavailableError("gone")))
    assert await read(connection, response) == 'data: {"a":1}\n\ndata: {"error":"gone"}\n\n'


async def test_a_bug_is_the_last_event_too_and_in_the_log(connection, caplog):
    response = await stream(connection, produce([{"a": 1}], RuntimeError("a bug")))
    assert (await read(connection, response)).count("data: ") == 2
    assert "a bug" in caplog.text


async def test_a_long_wait_is_filled_with_comments(connection, monkeypatch):
    monkeypatch.setattr(sse, "PING_SECONDS", 0.001)
    ready = asyncio.Event()
    bodies = []

    async def send(message):
        bodies.append(message.get("body"))
        if bodies.count(b": ping\n\n") == 2:
            ready.set()

    response = await stream(connection, produce(ready, [{"a": 1}]))
    await response({"type": "http"}, connection.receive, send)
    assert bodies[:3] == [None, b": ping\n\n", b": ping\n\n"]
    assert bodies[-3:] == [b'data: {"a":1}\n\n', b"data: [DONE]\n\n", b""]


async def test_after_a_long_wait_an_error_is_an_event(connection, monkeypatch):
    monkeypatch.setattr(sse, "PING_SECONDS", 0.0)
    waiting = asyncio.Event()
    response = await stream(connection, produce(waiting, UnavailableError("gone")))
    waiting.set()
    assert 'data: {"error":"gone"}\n\n' in await read(connection, response)


async def test_no_comment_is_sent_before_the_headers(connection, monkeypatch):
    monkeypatch.setattr(sse, "PING_SECONDS", 0.0)
    sent = []

    async def send(message):
        if not sent:
            for _ in range(9):
                await asyncio.sleep(0)
        sent.append(message["type"])

    response = await stream(connection, produce([{"a": 1}]))
    await response({"type": "http"}, connection.receive, send)
    assert sent[0] == "http.response.start"


async def test_a_client_that_leaves_in_mid_stream_stops_the_work_in_peace(connection):
    """The end of the work awaits everything that has to be awaited."""
    released = asyncio.Event()

    async def work():
        try:
            yield [{"a": 1}]
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            released.set()

    async def send(message):
        if message.get("body"):
            connection.gone.set()

    response = await stream(connection, work())
    await response({"type": "http"}, connection.receive, send)
    assert released.is_set()


async def test_a_client_that_leaves_before_the_first_event_stops_the_work(connection):
    closed = asyncio.Event()
    waiting = asyncio.ensure_future(stream(connection, produce(asyncio.Event(), closed=closed)))
    connection.gone.set()
    with pytest.raises(ClientGoneError):
        await waiting
    assert closed.is_set()


async def test_a_response_that_cannot_be_sent_stops_the_work(connection):
    closed = asyncio.Event()

    async def send(message):
        if message.get("body"):
            raise OSError("the connection is broken")

    response = await stream(connection, produce([{"a": 1}], asyncio.Event(), closed=closed))
    with pytest.raises(OSError, match="broken"):
        await response({"type": "http"}, connection.receive, send)
    assert closed.is_set()
