"""The link against a real WebSocket server that says what a lead would, or something else."""

import asyncio
import contextlib
import itertools
import random
import re
import socket
import ssl
import time

import pytest
from websockets.asyncio.server import serve

from back import link as link_module
from back.connection_log import ConnectionLog
from back.link import Link, LostError, RefusedError
from shared.protocol import (
    Close,
    Draft,
    Extend,
    Hello,
    Open,
    Refused,
    VocabularyId,
    Welcome,
    parse_back_message,
)
from shared.sampling.sampler import SamplingParameters
from tests.certificates import make_certificate

HELLO = Hello(
    protocol=1,
    name="b",
    vocabulary=VocabularyId(fingerprint="f", n_tokens=9, model="m"),
    n_ctx=64,
    n_sequences=2,
)
WELCOME = Welcome(back="id", name="b")
OPEN = Open(sequence="s", sampling=SamplingParameters(seed=1), tokens=[1, 2])


class Recorder:
    """A follower that notes what it is told."""

    def __init__(self):
        self.heard = asyncio.Queue()

    def tell(self, message):
        self.heard.put_nowait(message)

    def reset(self):
        self.heard.put_nowait("reset")


@pytest.fixture(autouse=True)
def quick_returns(monkeypatch):
    monkeypatch.setattr(link_module, "_FIRST_DELAY", 0.001)
    monkeypatch.setattr(link_module, "_MOST_DELAY", 0.01)


@contextlib.asynccontextmanager
async def linked(*visits, key=None, ping_seconds=20.0, clock=time.monotonic, **options):
    """A link to a lead that treats each connection as the next of `visits` says, the last one for ever.

    `options` are those of the lead's server.
    """
    connections = []

    async def handler(connection):
        visit = visits[min(len(connections), len(visits) - 1)]
        connections.append(connection)
        await visit(connection)

    async with serve(handler, "127.0.0.1", 0, **options) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"ws://127.0.0.1:{port}/v1/speculation"
        link = Link(url, HELLO, random.Random(1), key, ping_seconds=ping_seconds, clock=clock)
        follower = Recorder()
        running = asyncio.ensure_future(link.run(follower))
        try:
            yield link, follower, running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def saying(*messages, then=None):
    async def visit(connection):
        await connection.recv()
        for message in messages:
            await connection.send(message if isinstance(message, str) else message.model_dump_json())
        await (then(connection) if then else connection.wait_closed())

    return visit


async def hang_up(connection):
    await connection.close(1012, "restarting")


async def test_it_says_hello_first():
    said = asyncio.Queue()

    async def visit(connection):
        said.put_nowait(parse_back_message(await connection.recv()))
        await connection.wait_closed()

    async with linked(visit):
        assert await said.get() == HELLO


async def test_the_worker_hears_everything_in_order():
    news = [OPEN, Extend(sequence="s", start=2, tokens=[3]), Close(sequence="s", reason="ended")]
    async with linked(saying(WELCOME, *news)) as (_, follower, _):
        assert [await follower.heard.get() for _ in news] == news


async def test_a_draft_reaches_the_lead():
    received = asyncio.Queue()

    async def listen(connection):
        received.put_nowait(parse_back_message(await connection.recv()))
        await connection.wait_closed()

    async with linked(saying(WELCOME, OPEN, then=listen)) as (link, follower, _):
        await follower.heard.get()
        draft = Draft(sequence="s", base=2, tokens=[3])
        link.post(draft)
        assert await received.get() == draft


async def test_only_the_newest_draft_of_a_sequence_is_sent():
    received = asyncio.Queue()

    async def listen(connection):
        async for frame in connection:
            received.put_nowait(parse_back_message(frame))

    async with linked(saying(WELCOME, OPEN, then=listen)) as (link, follower, _):
        await follower.heard.get()
        for n in range(1, 4):
            link.post(Draft(sequence="s", base=2, tokens=[7] * n))
        assert (await received.get()).tokens == [7, 7, 7]


async def test_after_a_break_it_forgets_and_comes_back():
    async with linked(saying(WELCOME, OPEN, then=hang_up), saying(WELCOME, OPEN)) as (_, follower, _):
        assert [await follower.heard.get() for _ in range(3)] == [OPEN, "reset", OPEN]


async def test_a_lead_that_answers_no_pings_is_dialled_again():
    deaf = []

    async def fall_silent(connection):
        deaf.append(connection.transport)
        connection.transport.pause_reading()
        await connection.wait_closed()

    silent = saying(WELCOME, OPEN, then=fall_silent)
    async with linked(silent, saying(WELCOME, OPEN), ping_seconds=0.05) as (_, follower, _):
        assert [await follower.heard.get() for _ in range(3)] == [OPEN, "reset", OPEN]
        deaf[0].abort()


async def test_a_lead_that_is_loading_is_asked_again():
    async def loading(connection):
        await connection.close(1013, "the lead is loading its model")

    async with linked(loading, saying(WELCOME, OPEN)) as (_, follower, _):
        assert [await follower.heard.get() for _ in range(2)] == ["reset", OPEN]


@pytest.mark.parametrize("junk", ["{", '{"type": "nonsense"}', WELCOME.model_dump_json()])
async def test_junk_is_a_reason_to_start_over(junk):
    async with linked(saying(WELCOME, junk), saying(WELCOME, OPEN)) as (_, follower, _):
        assert [await follower.heard.get() for _ in range(2)] == ["reset", OPEN]


async def test_a_refusal_ends_it_with_the_leads_reason():
    async with linked(saying(Refused(reason="the vocabularies differ"))) as (_, _, running):
        with pytest.raises(RefusedError, match="the vocabularies differ"):
            await running


async def dial_three_times(url, tls=None):
    """Without anybody there who would be a lead."""
    link, follower = Link(url, HELLO, random.Random(1), tls=tls), Recorder()
    running = asyncio.ensure_future(link.run(follower))
    for _ in range(3):
        await follower.heard.get()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_absent_lead_is_said_once(caplog):
    with socket_nobody_listens_on() as port, caplog.at_level("INFO", logger="back"):
        await dial_three_times(f"ws://127.0.0.1:{port}/")
    assert [record.message.count("no lead at") for record in caplog.records] == [1]


@contextlib.asynccontextmanager
async def server_of(reply, tls=None):
    """The port of one that says `reply` and hangs up."""

    async def answer(_, writer):
        writer.write(reply)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]


async def test_a_lead_with_a_certificate_is_dialled_with_https(tmp_path, caplog):
    made = make_certificate(tmp_path, "gpu-box")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.chain, made.key)
    async with server_of(b"", tls) as port:
        with caplog.at_level("INFO", logger="back"):
            await dial_three_times(f"ws://127.0.0.1:{port}/")
    assert "(it hangs up: if it has a certificate, its address begins with https://)" in caplog.text


async def test_a_lead_without_a_certificate_is_dialled_with_http(caplog):
    async with server_of(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        with caplog.at_level("INFO", logger="back"):
            await dial_three_times(f"wss://127.0.0.1:{port}/", ssl.create_default_context())
    assert "(it does not speak HTTPS: does its address begin with http://?)" in caplog.text


@contextlib.contextmanager
def socket_nobody_listens_on():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def answering(status, body):
    """A lead that does not open its door."""

    def process_request(connection, _request):
        return connection.respond(status, body)

    return process_request


async def test_the_key_is_shown_at_the_door():
    shown = []

    def process_request(_connection, request):
        shown.append(request.headers["Authorization"])

    async with linked(saying(WELCOME, OPEN), key="secret", process_request=process_request) as (
        _,
        follower,
        _r,
    ):
        assert await follower.heard.get() == OPEN
    assert shown == ["Bearer secret"]


@pytest.mark.parametrize(
    ("status", "body", "complaint"),
    [
        (
            401,
            '{"error": {"message": "no such key"}}',
            r"no such key \(give the lead's key for backs with BACK_KEY",
        ),
        (403, '{"error": {"message": "not for clients"}}', "refuses this back: not for clients"),
        (403, "<html>", "refuses this back: HTTP 403"),
        (403, '{"error": 5}', "refuses this back: HTTP 403"),
    ],
)
async def test_a_closed_door_ends_the_back_with_the_leads_words(status, body, complaint):
    async with linked(saying(), process_request=answering(status, body)) as (_, _follower, running):
        with pytest.raises(RefusedError, match=complaint):
            await running


async def test_a_lead_in_trouble_is_tried_again():
    troubles = iter([answering(503, "later"), answering(502, "proxy")])

    def process_request(connection, request):
        trouble = next(troubles, None)
        return trouble(connection, request) if trouble else None

    async with linked(saying(WELCOME, OPEN), process_request=process_request) as (_, follower, _r):
        while await follower.heard.get() != OPEN:
            pass


async def test_drafts_are_cut_to_what_the_lead_takes():
    received = asyncio.Queue()

    async def visit(connection):
        await connection.recv()
        await connection.send(Welcome(back="id", name="b", max_draft=2).model_dump_json())
        await connection.send(OPEN.model_dump_json())
        received.put_nowait(parse_back_message(await connection.recv()))

    async with linked(visit) as (link, follower, _):
        await follower.heard.get()
        link.post(Draft(sequence="s", base=2, tokens=[7, 8, 9], confidences=[0.9, 0.8, 0.7]))
        draft = await received.get()
    assert (draft.tokens, draft.confidences, draft.parents) == ([7, 8], [0.9, 0.8], None)


async def test_of_more_drafts_than_the_lead_takes_the_newest_are_sent():
    received = asyncio.Queue()
    now = 0.0

    async def listen(connection):
        async for frame in connection:
            received.put_nowait(parse_back_message(frame))

    welcome = Welcome(back="id", name="b", max_drafts_per_second=1)
    async with linked(saying(welcome, OPEN, then=listen), clock=lambda: now) as (link, follower, _):
        await follower.heard.get()
        link.post(Draft(sequence="s", base=2, tokens=[1]))
        assert (await received.get()).tokens == [1]
        now = 1.1  # a little before the next one is allowed
        link.post(Draft(sequence="s", base=2, tokens=[2]))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await received.get()
        link.post(Draft(sequence="s", base=2, tokens=[3]))
        now = 2.0
        assert (await received.get()).tokens == [3]


class Clock:
    """Stands still until a test moves it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def move(self, seconds):
        self.now += seconds


@pytest.fixture
def pauses(monkeypatch):
    """The delays that a link has asked for; it gets very short ones."""
    asked = []

    def delays(_first, _most, _rng):
        for n in itertools.count():
            asked.append(n)
            yield 0.001

    monkeypatch.setattr(link_module, "jittered_delays", delays)
    return asked


async def visits_of(follower, n):
    for _ in range(n):
        while await follower.heard.get() != "reset":
            pass


async def test_the_pauses_grow_where_the_lead_hangs_up_after_its_welcome(pauses):
    async with linked(saying(WELCOME, then=hang_up), clock=Clock()) as (_, follower, _r):
        await visits_of(follower, 4)
    assert pauses[:4] == [0, 1, 2, 3]


async def hang_up_after_a_draft(connection):
    await connection.recv()
    await hang_up(connection)


async def test_after_a_stable_connection_the_pauses_are_short_again(pauses, monkeypatch):
    monkeypatch.setattr(link_module, "STABLE_SECONDS", 0.0)
    async with linked(saying(WELCOME, OPEN, then=hang_up_after_a_draft)) as (link, follower, _r):
        follower.tell = lambda _message: link.post(Draft(sequence="s", base=2, tokens=[3]))
        await visits_of(follower, 4)
    assert pauses[:4] == [0, 0, 0, 0]


async def test_a_lead_that_keeps_hanging_up_is_logged_a_few_times(caplog):
    caplog.set_level("INFO", "back")
    async with linked(saying(WELCOME, then=hang_up)) as (_, follower, _r):
        await visits_of(follower, 10)
    assert len(caplog.messages) == 6
    assert "keeps breaking" in caplog.messages[-1]


async def test_a_lead_that_stops_hanging_up_is_logged_once_the_connection_is_stable(caplog, monkeypatch):
    caplog.set_level("INFO", "back")
    stable = asyncio.Event()

    class WatchedLog(ConnectionLog):
        def stable(self):
            super().stable()
            stable.set()

    async def stay(connection):
        monkeypatch.setattr(link_module, "STABLE_SECONDS", 0.0)
        await saying(WELCOME)(connection)

    monkeypatch.setattr(link_module, "ConnectionLog", WatchedLog)
    async with linked(*[saying(WELCOME, then=hang_up)] * 5, stay):
        await stable.wait()
    assert caplog.messages[-1].startswith("drafting for ")


async def test_what_the_lead_says_cannot_write_lines_of_the_log(caplog):
    caplog.set_level("INFO", "back")
    welcome = Welcome(back="id", name="b\x1b[31m\n12:00:00 back ERROR: lost")
    async with linked(saying(welcome, OPEN)) as (_, follower, _r):
        await follower.heard.get()
    assert caplog.messages[0].endswith(" as b␛[31m 12:00:00 back ERROR: lost")


async def test_a_long_refusal_is_cut():
    async with linked(saying(Refused(reason="no\n" * 100_000))) as (_, _f, running):
        with pytest.raises(RefusedError) as refused:
            await running
    assert len(str(refused.value)) < 1100
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("https://gpu.example/v1/speculation", "redirects to https://gpu.example: use that as --lead"),
        ("http://gpu.example:5555/duo/v1/speculation", "redirects to http://gpu.example:5555/duo: use"),
        ("nonsense:", "redirects to nonsense:: use"),
    ],
)
async def test_a_redirect_ends_the_back_with_the_address_to_use(location, words):
    def process_request(connection, _request):
        response = connection.respond(301, "moved")
        response.headers["Location"] = location
        return response

    async with linked(saying(), process_request=process_request) as (_, _follower, running):
        with pytest.raises(RefusedError, match=re.escape(words)):
            await running


@pytest.mark.parametrize("url", ["http://host/", "ws://host:port/", "ws://gpu..example/", "ws://[::1/"])
async def test_an_address_that_cannot_be_dialled_ends_the_back_with_a_sentence(url):
    with pytest.raises(RefusedError, match="is no address of a lead"):
        await Link(url, HELLO, random.Random(1)).run(Recorder())


async def test_a_lead_that_stays_away_is_given_up_where_another_may_be_found():
    clock = Clock()
    follower = Recorder()
    follower.reset = lambda: clock.move(30)
    with socket_nobody_listens_on() as port:
        link = Link(f"ws://127.0.0.1:{port}/", HELLO, random.Random(1), most_away_seconds=60.0, clock=clock)
        with pytest.raises(LostError, match="for 60 s"):
            await link.run(follower)


async def test_a_link_that_is_moved_dials_the_other_address():
    async with linked(saying(WELCOME, OPEN)) as (reachable, follower, _):
        await follower.heard.get()
        with socket_nobody_listens_on() as port:
            link = Link(f"ws://127.0.0.1:{port}/", HELLO, random.Random(1))
            link.move(reachable._url, None)
        other = Recorder()
        running = asyncio.ensure_future(link.run(other))
        assert await other.heard.get() == OPEN
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
