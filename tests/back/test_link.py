"""The link to a real WebSocket server that plays the lead."""

import asyncio
import contextlib
import itertools
import ssl

import pytest

from back import link as link_module
from back.dial import OtherVocabularyError, RefusedError
from back.link import LeadLink, LostError, Outbox
from shared.protocol import Close, Draft, Extend, Refused, VocabularyId, Welcome, parse_back_message
from shared.rate_limit import Backoff
from tests.back.linking import (
    HELLO,
    OPEN,
    WELCOME,
    NoDelays,
    Recorder,
    answering,
    hang_up,
    linked,
    saying,
    unused_port,
)


class SlowWorker(Recorder):
    """A worker with too much to do until `is_behind` is false."""

    def __init__(self):
        super().__init__()
        self.is_behind = True
        self.was_asked_often = asyncio.Event()
        self._n_asked = 0

    @property
    def n_unread(self):
        self._n_asked += 1
        if self._n_asked > 5:
            self.was_asked_often.set()
        return link_module._MAX_UNREAD + self.is_behind


async def test_hello_is_the_first_message():
    said = asyncio.Queue()

    async def probe(connection):
        said.put_nowait(parse_back_message(await connection.recv()))
        await connection.wait_closed()

    async with linked(probe):
        assert await said.get() == HELLO


async def test_a_back_that_translates_keeps_the_name_of_its_draft_model():
    said = asyncio.Queue()

    async def probe(connection):
        said.put_nowait(parse_back_message(await connection.recv()))

    async with linked(probe) as (link, *_):
        await said.get()
        link.set_vocabulary(VocabularyId(fingerprint="lead", n_tokens=8, model="big"))
        while (hello := await said.get()).vocabulary.fingerprint != "lead":
            pass
    assert hello.vocabulary.model == "m"


async def test_the_listener_gets_all_messages_in_order():
    news = [OPEN, Extend(sequence="s", start=2, tokens=[3]), Close(sequence="s", reason="ended")]
    async with linked(saying(WELCOME, *news)) as (_, listener, _):
        assert [await listener.received.get() for _ in news] == news


async def test_a_lead_that_sends_faster_than_it_is_heard_has_to_wait(monkeypatch):
    monkeypatch.setattr(link_module, "_PAUSE_SECONDS", 0.0)
    close = Close(sequence="s", reason="ended")
    async with linked(saying(WELCOME, OPEN, close), listener=SlowWorker()) as (_, listener, _):
        await listener.was_asked_often.wait()
        assert listener.received.qsize() == 1
        listener.is_behind = False
        assert [await listener.received.get(), await listener.received.get()] == [OPEN, close]


async def test_a_lead_that_answers_no_pings_is_dialled_again():
    deaf = []

    async def fall_silent(connection):
        deaf.append(connection.transport)
        connection.transport.pause_reading()
        await connection.wait_closed()

    silent = saying(WELCOME, OPEN, then=fall_silent)
    async with linked(silent, saying(WELCOME, OPEN), ping_seconds=0.25) as (_, listener, _):
        assert [await listener.received.get() for _ in range(3)] == [OPEN, "disconnected", OPEN]
        deaf[0].abort()


async def test_a_lead_that_is_still_loading_is_dialled_again():
    async def loading(connection):
        await connection.close(1013, "the lead is loading its model")

    async with linked(loading, saying(WELCOME, OPEN)) as (_, listener, _):
        assert await listener.received.get() == OPEN


@pytest.mark.parametrize("junk", ["{", '{"type": "nonsense"}', WELCOME.model_dump_json()])
async def test_an_invalid_message_makes_it_connect_again(junk):
    async with linked(saying(WELCOME, junk), saying(WELCOME, OPEN)) as (_, listener, _):
        assert [await listener.received.get() for _ in range(2)] == ["disconnected", OPEN]


@pytest.mark.parametrize(("code", "error"), [(None, RefusedError), ("vocabulary", OtherVocabularyError)])
async def test_a_refusal_raises_with_the_reason_of_the_lead(code, error):
    async with linked(saying(Refused(reason="the vocabularies differ", code=code))) as (_, _, running):
        with pytest.raises(error, match="the vocabularies differ") as raised:
            await running
    assert raised.type is error


async def test_a_server_error_is_retried():
    troubles = iter([answering(503, "later"), answering(502, "proxy")])

    def process_request(connection, request):
        trouble = next(troubles, None)
        return trouble(connection, request) if trouble else None

    async with linked(saying(WELCOME, OPEN), process_request=process_request) as (_, listener, _r):
        while await listener.received.get() != OPEN:
            pass


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def move(self, seconds):
        self.now += seconds


@pytest.fixture
def delays(monkeypatch):
    """The number of each delay, counted from the shortest delay. All delays are very short."""
    asked = []

    class Counted(Backoff):
        def reset(self):
            self.numbers = itertools.count()

        def __next__(self):
            asked.append(next(self.numbers))
            return 0.001

    monkeypatch.setattr(link_module, "Backoff", Counted)
    return asked


async def visits_of(listener, n):
    for _ in range(n):
        while await listener.received.get() != "disconnected":
            pass


async def test_the_delays_grow_when_the_lead_hangs_up_right_after_its_welcome(delays):
    async with linked(saying(WELCOME, then=hang_up), clock=Clock()) as (_, listener, _r):
        await visits_of(listener, 4)
    assert delays[:4] == [0, 1, 2, 3]


async def hang_up_after_a_draft(connection):
    await connection.recv()
    await hang_up(connection)


async def test_after_a_stable_connection_the_delays_are_short_again(delays, monkeypatch):
    monkeypatch.setattr(link_module, "STABLE_SECONDS", 0.0)

    class Drafting(Recorder):
        def on_message(self, lead, message):
            super().on_message(lead, message)
            link.outbox.post(Draft(sequence="s", base=2, tokens=[3]))

    handle = saying(WELCOME, OPEN, then=hang_up_after_a_draft)
    async with linked(handle, listener=Drafting()) as (link, listener, _r):
        await visits_of(listener, 4)
    assert delays[:4] == [0, 0, 0, 0]


async def test_a_name_from_the_lead_cannot_forge_log_lines(caplog):
    caplog.set_level("INFO", "back")
    welcome = Welcome(back="id", name="b\x1b[31m\n12:00:00 back ERROR: lost")
    async with linked(saying(welcome, OPEN)) as (_, listener, _r):
        await listener.received.get()
    assert caplog.messages[0].endswith(" as b␛[31m 12:00:00 back ERROR: lost")


async def test_a_long_refusal_is_truncated():
    async with linked(saying(Refused(reason="no\n" * 100_000))) as (_, _f, running):
        with pytest.raises(RefusedError) as refused:
            await running
    assert len(str(refused.value)) < 1100
    assert "\n" not in str(refused.value)


async def test_another_server_at_the_address_of_a_lead_known_by_its_key_is_no_lead(caplog):
    """DHCP may give an address to another server. A lead known by its address may have a bad certificate."""
    clock = Clock()
    distrust = ssl.SSLCertVerificationError("certificate verify failed")
    distrust.verify_message, distrust.verify_code = "self-signed certificate", 18
    options = {"max_absence_seconds": 60.0, "clock": clock}
    link = LeadLink("wss://10.0.0.1/", HELLO, NoDelays(), survives_distrust=True, **options)
    with caplog.at_level("INFO"):
        assert link._process_exception(distrust) is None
    assert "no lead at wss://10.0.0.1/ (another server answers there): trying again" in caplog.text
    clock.move(60)
    assert isinstance(link._process_exception(distrust), LostError)
    other = LeadLink("wss://10.0.0.1/", HELLO, NoDelays(), **options)
    assert isinstance(other._process_exception(distrust), RefusedError)


async def test_a_lead_that_stays_unreachable_is_given_up():
    clock = Clock()
    rng = NoDelays(lambda: clock.move(30))
    with unused_port() as port:
        link = LeadLink(f"ws://127.0.0.1:{port}/", HELLO, rng, max_absence_seconds=60.0, clock=clock)
        with pytest.raises(LostError, match="for 60 s"):
            await link.run(Recorder())


async def test_set_lead_makes_the_next_run_dial_another_address():
    async with linked(saying(WELCOME, OPEN)) as (reachable, listener, _):
        await listener.received.get()
        with unused_port() as port:
            link = LeadLink(f"ws://127.0.0.1:{port}/", HELLO, NoDelays())
            link.set_lead(reachable._url, None)
        other = Recorder()
        running = asyncio.ensure_future(link.run(other))
        assert await other.received.get() == OPEN
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@contextlib.asynccontextmanager
async def sending(clock=lambda: 0.0, *earlier, **limits):
    """An outbox with drafts of an earlier connection, and a queue of the messages that it sends."""
    sent = asyncio.Queue()
    outbox = Outbox(clock)
    for draft in earlier:
        outbox._put(draft)

    async def send(frame):
        sent.put_nowait(parse_back_message(frame))

    task = asyncio.ensure_future(outbox.send_all(send, Welcome(back="id", name="b", **limits)))
    yield outbox, sent
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def draft_of(*tokens, sequence="s", **more):
    return Draft(sequence=sequence, base=2, tokens=tokens, **more)


async def test_only_the_newest_draft_of_a_sequence_is_sent():
    async with sending() as (outbox, sent):
        for n in range(1, 4):
            outbox.post(draft_of(*[7] * n))
        outbox.post(draft_of(8, sequence="t"))
        assert [await sent.get() for _ in range(2)] == [draft_of(7, 7, 7), draft_of(8, sequence="t")]


async def test_a_draft_may_be_posted_by_another_thread():
    async with sending() as (outbox, sent):
        await asyncio.to_thread(outbox.post, draft_of(7))
        assert await sent.get() == draft_of(7)


async def test_a_draft_posted_after_the_end_of_the_event_loop_is_dropped():
    outbox = Outbox(lambda: 0.0)
    outbox._loop = asyncio.new_event_loop()
    outbox._loop.close()
    outbox.post(draft_of(7))


async def test_what_an_earlier_connection_has_left_is_not_sent():
    async with sending(lambda: 0.0, draft_of(7)) as (outbox, sent):
        outbox.post(draft_of(8, sequence="t"))
        assert await sent.get() == draft_of(8, sequence="t")


async def test_drafts_are_cut_to_the_longest_that_the_lead_accepts():
    async with sending(max_draft=2) as (outbox, sent):
        outbox.post(draft_of(7, 8, 9, confidences=[0.9, 0.8, 0.7]))
        assert await sent.get() == draft_of(7, 8, confidences=[0.9, 0.8])


async def test_beyond_the_rate_limit_only_the_newest_draft_is_sent():
    now = 0.0
    async with sending(lambda: now, max_drafts_per_second=1) as (outbox, sent):
        outbox.post(draft_of(1))
        assert await sent.get() == draft_of(1)
        now = 1.1  # a little before the next one is allowed
        outbox.post(draft_of(2))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await sent.get()
        outbox.post(draft_of(3))
        await asyncio.sleep(0)  # the outbox has it before more time passes
        now = 2.0
        assert await sent.get() == draft_of(3)
