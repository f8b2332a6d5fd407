"""The backs' routes: by POST in this process, by WebSocket over a real server on a free port."""

import asyncio
import contextlib

import httpx
import pytest
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from lead.backs import join_limits
from lead.engine.events import Committed, Started
from lead.engine.explain import Explain
from lead.engine_client.engine_state import EngineState
from lead.http.routes import speculation
from lead.server.app import create_app
from lead.settings.keys import Key, Keyring, Principal, Role
from shared.errors import UnavailableError
from shared.protocol import Close, Draft, Extend, Open, Refused, VocabularyId, Welcome, parse_lead_message
from shared.sampling.parameters import SamplingParameters
from tests.lead.serving import app_served, hello
from tests.toy_engine import submit

URL = "/v1/speculation"
SAMPLING = SamplingParameters(seed=3)


@pytest.fixture(autouse=True)
def _prompt_refusals(monkeypatch):
    monkeypatch.setattr(join_limits, "REFUSAL_SECONDS", 0.0)


def running(lead, tokens=(1, 2, 3)):
    sequence = lead.sequences.create(submit(tokens=tokens, sampling=SAMPLING))
    lead.sequences.apply(Started(sequence=sequence.id, n_cached=0), 0.0)
    return sequence


def commit(lead, sequence, tokens):
    start = len(sequence.tokens)
    lead.sequences.apply(Committed(sequence=sequence.id, start=start, tokens=tokens), 0.0)


@contextlib.asynccontextmanager
async def served(app):
    """The WebSocket URL of `app` on a real server."""
    async with app_served(app) as (port, _):
        yield f"ws://127.0.0.1:{port}{URL}"


@contextlib.asynccontextmanager
async def welcomed(lead, **changes):
    """A WebSocket of a back that the lead has welcomed."""
    async with served(lead.app) as url, connect(url) as back:
        await back.send(hello(lead, **changes).model_dump_json())
        assert isinstance(await heard(back), Welcome)
        yield back


async def heard(back):
    async with asyncio.timeout(60):
        return parse_lead_message(await back.recv())


async def drain(back):
    while True:
        await back.recv()


async def closed(back):
    """The frame with which the lead closed the connection."""
    async with asyncio.timeout(60):
        with pytest.raises(ConnectionClosed) as ended:
            await drain(back)
    return ended.value.rcvd


async def post(client, *messages, back=None, wait=0):
    body = {"back": back, "messages": [message.model_dump(mode="json") for message in messages]}
    response = await client.post(URL, params={"wait": wait}, json=body)
    assert response.status_code == 200, response.text
    return [
        parse_lead_message(httpx.Response(200, json=item).content) for item in response.json()["messages"]
    ]


# By WebSocket


@pytest.mark.parametrize(
    ("client", "server", "is_local"),
    [
        ("127.0.0.1", "0.0.0.0", True),
        ("::1", "::1", True),
        ("192.168.1.7", "192.168.1.7", True),
        ("192.168.1.8", "192.168.1.7", False),
    ],
)
def test_a_back_is_on_this_machine_that_comes_from_its_address(client, server, is_local):
    scope = {"type": "http", "client": (client, 40000), "server": (server, 5555)}
    assert speculation._sender_of(HTTPConnection(scope)).is_local == is_local


async def test_the_engine_hears_of_a_back_on_this_machine(lead):
    async with welcomed(lead):
        assert lead.engine.shares_cores


async def test_a_back_hears_what_is_committed_while_it_is_connected(lead):
    sequence = running(lead)
    async with welcomed(lead) as back:
        assert await heard(back) == Open(sequence=sequence.id, sampling=SAMPLING, tokens=[1, 2, 3])
        commit(lead, sequence, [4, 5])
        assert await heard(back) == Extend(sequence=sequence.id, start=3, tokens=[4, 5])
        lead.sequences.discard(sequence)
        assert await heard(back) == Close(sequence=sequence.id, reason="ended")


async def test_a_draft_reaches_the_engine(lead):
    sequence = running(lead)
    async with welcomed(lead) as back:
        await heard(back)
        await back.send(Draft(sequence=sequence.id, base=3, tokens=[7]).model_dump_json())
        await back.send("{}")  # junk: the lead's goodbye shows that it has read the draft before
        await closed(back)
    assert [(draft.source, draft.tokens) for draft in lead.engine.posted] == [("desk", [7])]


@pytest.mark.parametrize(
    ("junk", "code"),
    [
        *((junk, 1008) for junk in ("{", "[]", '{"type": "open"}', '{"type": "draft"}')),
        *((b"\x00\x01", 1008), ("HELLO", 1008), pytest.param("x" * 70_000, 1009, id="too large")),
    ],
)
async def test_junk_closes_the_connection_with_the_reason(lead, junk, code):
    async with welcomed(lead) as back:
        await back.send(hello(lead).model_dump_json() if junk == "HELLO" else junk)
        close = await closed(back)
    assert close.code == code
    assert close.reason


async def test_a_long_reason_is_cut_to_what_a_close_frame_holds(lead):
    async with welcomed(lead) as back:
        await back.send('{"type": "' + "\N{OWL}" * 200 + '"}')
        close = await closed(back)
    assert close.code == 1008
    assert 100 < len(close.reason.encode()) <= 123


@pytest.mark.parametrize("last", ["{", b"\x00", '{"type": "hello"}'])
async def test_a_back_that_sends_junk_and_hangs_up_leaves_no_trace_in_the_log(lead, caplog, last):
    async with served(lead.app) as url:
        for _ in range(5):
            lead.now += 1000.0  # it may join again
            back = await connect(url)
            await back.send(hello(lead).model_dump_json())
            await back.send(last)
            back.transport.abort()
        async with asyncio.timeout(60), httpx.AsyncClient(trust_env=False) as client:
            while (await client.get(url.replace("ws", "http", 1))).json()["backs"]:
                pass
    assert [record for record in caplog.records if record.exc_info] == []


async def test_a_back_that_hangs_up_before_its_welcome_is_forgotten(lead):
    class Gone:
        async def receive_text(self):
            return hello(lead).model_dump_json()

        async def send_text(self, _):
            raise WebSocketDisconnect

    sender = speculation._Sender("peer", is_local=False)
    with pytest.raises(WebSocketDisconnect):
        await speculation._welcome(Gone(), lead.app.state.services, sender)
    assert list(lead.backs) == []


async def test_a_back_that_was_sent_away_may_not_come_back_at_once(lead):
    async with served(lead.app) as url:
        async with connect(url) as back:
            await back.send(hello(lead).model_dump_json())
            await back.send("{")
            assert (await closed(back)).code == 1008
        async with connect(url) as again:
            await again.send(hello(lead).model_dump_json())
            close = await closed(again)
        assert (close.code, close.reason) == (
            1013,
            "this back was disconnected because it broke a limit: try again in 10 s",
        )
        lead.now += 10.0
        async with connect(url) as later:
            await later.send(hello(lead).model_dump_json())
            assert isinstance(await heard(later), Welcome)


async def test_text_that_is_not_utf_8_sends_a_back_away_without_a_trace(lead, caplog):
    async with welcomed(lead) as back:
        await back.send(b"\xff\xfe", text=True)
        assert (await closed(back)).code in {1007, 1008}
    assert [record for record in caplog.records if record.exc_info] == []


async def test_messages_above_the_allowance_are_not_even_parsed(lead, monkeypatch):
    async with welcomed(lead) as back:
        monkeypatch.setattr(lead.backs, "may_send", lambda _, n_bytes: n_bytes < 100)
        await back.send("{" * 100)
        await back.send("[]")  # is parsed, and closes the connection
        assert (await closed(back)).code == 1008


@pytest.mark.parametrize(
    "junk", ["{", b"\x00", '{"type": "draft", "sequence": "s", "base": 0, "tokens": [1]}']
)
async def test_a_peer_that_begins_with_junk_is_refused(lead, junk):
    async with served(lead.app) as url, connect(url) as back:
        await back.send(junk)
        assert isinstance(await heard(back), Refused)
        await closed(back)


async def test_a_bug_is_not_taken_for_a_back_that_left(lead, caplog, monkeypatch):
    def fail(*_):
        raise RuntimeError("a bug")

    async with welcomed(lead) as back:
        monkeypatch.setattr(lead.backs, "take_draft", fail)
        await back.send(Draft(sequence="s", base=3, tokens=[7]).model_dump_json())
        with pytest.raises(ConnectionClosed):
            await drain(back)
    assert "a bug" in caplog.text


async def test_another_vocabulary_is_refused_in_words(lead):
    async with served(lead.app) as url, connect(url) as back:
        theirs = VocabularyId(fingerprint="x", n_tokens=5, model="mine")
        await back.send(hello(lead, vocabulary=theirs).model_dump_json())
        refused = await heard(back)
        assert isinstance(refused, Refused)
        assert "'mine'" in refused.reason
        assert refused.code == "vocabulary"
        await closed(back)


async def test_a_peer_that_says_nothing_is_disconnected(lead, monkeypatch):
    monkeypatch.setattr(speculation, "HELLO_SECONDS", 0.01)
    async with served(lead.app) as url, connect(url) as back:
        with pytest.raises(ConnectionClosed) as ended:
            await heard(back)
    assert (ended.value.rcvd.code, ended.value.rcvd.reason) == (1013, "no hello message arrived")


async def test_a_refusal_is_held_back(lead, monkeypatch):
    monkeypatch.setattr(join_limits, "REFUSAL_SECONDS", 3600.0)
    for _ in range(100):
        with contextlib.suppress(UnavailableError):
            lead.backs.admit("anyone at 127.0.0.1")
    async with served(lead.app) as url, connect(url) as back:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(heard(back), 0.05)
        await back.close()


async def test_a_lead_that_is_loading_says_try_again(lead):
    lead.engine.ready = None
    async with served(lead.app) as url, connect(url) as back:
        assert (await closed(back)).code == 1013


async def test_a_back_that_does_not_read_delays_no_other(lead):
    """One back does not take megabytes. The other back still gets its updates."""
    sequence = running(lead, [5] * 100_000)
    async with (
        served(lead.app) as url,
        connect(url, max_queue=1, close_timeout=0) as deaf,
        connect(url) as other,
    ):
        await deaf.send(hello(lead, name="deaf").model_dump_json())
        await other.send(hello(lead, name="other").model_dump_json())
        told = 0
        await heard(other)
        while told < 100_000:
            told += len((await heard(other)).tokens)
        commit(lead, sequence, [6])
        assert (await heard(other)).tokens == [6]


@pytest.mark.parametrize(("key", "status"), [(None, 401), ("wrong", 401), ("of-a-client", 403)])
async def test_without_a_key_for_backs_there_is_no_handshake(lead, key, status):
    keys = [Key(Principal(role, "x"), f"of-a-{role.value}") for role in Role]
    app = create_app(lead.app.state.services, keys=Keyring(keys))
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with served(app) as url:
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, additional_headers=headers)
        assert refused.value.response.status_code == status
        assert b'"message"' in refused.value.response.body
        async with connect(url, additional_headers={"Authorization": "Bearer of-a-back"}) as back:
            await back.send(hello(lead).model_dump_json())
            assert isinstance(await heard(back), Welcome)


# By POST


async def test_a_draft_is_posted_and_the_news_comes_back(lead, client):
    sequence = running(lead)
    welcome, _ = await post(client, hello(lead))
    commit(lead, sequence, [4])
    news = await post(client, Draft(sequence=sequence.id, base=3, tokens=[4, 5]), back=welcome.back)
    assert news == [Extend(sequence=sequence.id, start=3, tokens=[4])]
    assert [draft.tokens for draft in lead.engine.posted] == [[4, 5]]


async def test_what_stood_in_a_lost_reply_is_posted_again(lead, client):
    sequence = running(lead)
    body = {"messages": [hello(lead).model_dump()]}
    first = (await client.post(URL, json=body)).json()
    back = first["messages"][0]["back"]
    commit(lead, sequence, [4])
    lost = (await client.post(URL, json={"back": back, "heard": first["number"]})).json()
    again = (await client.post(URL, json={"back": back, "heard": first["number"]})).json()
    assert again["messages"] == lost["messages"] != []
    after = (await client.post(URL, json={"back": back, "heard": again["number"]})).json()
    assert after["messages"] == []


async def test_waiting_ends_with_the_first_news(lead, client):
    (welcome,) = await post(client, hello(lead))
    waiting = asyncio.ensure_future(post(client, back=welcome.back, wait=30))
    await asyncio.sleep(0)
    sequence = running(lead)
    async with asyncio.timeout(60):
        assert [message.sequence for message in await waiting] == [sequence.id]


async def test_waiting_ends_without_news_too(lead, client):
    (welcome,) = await post(client, hello(lead))
    assert await post(client, back=welcome.back, wait=0.01) == []


async def test_waiting_ends_when_the_lead_does(lead, client, monkeypatch):
    (welcome,) = await post(client, hello(lead))
    asked = asyncio.Event()
    monkeypatch.setattr(lead.backs, "updates", lambda _: asked.set())
    waiting = asyncio.ensure_future(post(client, back=welcome.back, wait=30))
    async with asyncio.timeout(60):
        await asked.wait()
        lead.backs.disconnect_http()
        assert await waiting == []


async def test_hello_is_said_once(lead, client):
    body = {"messages": [hello(lead).model_dump()] * 2}
    assert (await client.post(URL, json=body)).status_code == 400


async def test_a_back_that_posts_too_many_wrong_drafts_is_sent_away_for_some_time(lead, client):
    sequence = running(lead)
    welcome, _ = await post(client, hello(lead))
    wrong = Draft(sequence=sequence.id, base=99, tokens=[7]).model_dump()
    statuses = [
        (await client.post(URL, json={"back": welcome.back, "messages": [wrong] * 26})).status_code
        for _ in range(4)
    ]
    assert statuses == [200, 200, 200, 400]
    (refused,) = await post(client, back=welcome.back)
    assert "hello" in refused.reason
    response = await client.post(URL, json={"messages": [hello(lead).model_dump()]})
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    assert "try again in 10 s" in response.json()["error"]["message"]


@pytest.mark.parametrize("back", [None, "unknown"])
async def test_an_unknown_back_is_told_to_say_hello(client, back):
    (refused,) = await post(client, back=back)
    assert "hello" in refused.reason


@pytest.mark.parametrize(
    "body",
    [{"messages": [{"type": "x"}]}, {"messages": "x"}, {"messages": [{"type": "draft"}]}, [], {"back": 3}],
)
async def test_a_wrong_post_is_400(client, body):
    assert (await client.post(URL, json=body)).status_code == 400


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "long"])
async def test_a_wrong_wait_is_400(client, wait):
    response = await client.post(URL, params={"wait": wait}, json={})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "wait")


async def test_the_list_has_backs_and_their_sums(lead, client):
    await post(client, hello(lead))
    await post(client, hello(lead))
    body = (await client.get(URL)).json()
    assert [back["name"] for back in body["backs"]] == ["desk", "desk:2"]
    assert set(body["totals"]) >= {"n_drafts", "n_draft_tokens", "n_accepted_tokens", "n_stale_drafts"}


# What people and benches ask


async def test_the_list_says_why_the_planner_decides_as_it_does(client):
    assert (await client.get(URL)).json()["planner"] == {"policy": "adaptive"}


async def test_without_an_engine_the_list_is_still_there(lead, client):
    lead.engine.replies[Explain] = UnavailableError("the engine has ended")
    body = (await client.get(URL)).json()
    assert (body["backs"], body["planner"]) == ([], None)


@pytest.mark.parametrize("policy", ["adaptive", "fixed", "sync", "off"])
@pytest.mark.parametrize(("fields", "depth"), [({"depth": 7}, 7), ({}, 4)])
async def test_the_policy_can_be_changed_while_running(lead, client, policy, fields, depth):
    response = await client.put(URL, json={"policy": policy} | fields)
    assert (response.status_code, response.json()) == (200, {"policy": policy, "depth": depth})
    assert lead.engine.policy == (policy, depth)


@pytest.mark.parametrize(
    "body",
    [
        *({}, [], {"policy": "fast"}, {"policy": None}),
        *({"policy": "sync", "depth": depth} for depth in (-1, 33, 2.5)),
    ],
)
async def test_a_wrong_policy_is_400_and_changes_nothing(lead, client, body):
    assert (await client.put(URL, json=body)).status_code == 400
    assert lead.engine.policy is None


async def test_the_policy_of_an_engine_that_is_not_there_cannot_be_changed(lead, client):
    lead.engine.state = EngineState.STARTING
    assert (await client.put(URL, json={"policy": "off"})).status_code == 503
    assert lead.engine.policy is None


async def test_the_list_says_what_is_promised_of_texts_and_which_vocabulary_a_back_must_have(lead, client):
    about = (await client.get(URL)).json()["lead"]
    assert (about["exact"], about["promise"]) == (False, lead.engine.ready.exactness.guarantee)
    assert about["vocabulary"] == lead.vocabulary.identify().model_dump()
