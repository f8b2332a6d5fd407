"""Hostile clients, backs and leads do what they claim, and a fault of the other side is noticed."""

import json
import random

import httpx
import pytest

from lab.campaign.hostile_back import HostileMessages
from lab.campaign.hostile_json import Mutator, Raw, fitting, large, small, written
from lab.campaign.hostile_lead import HostileLead
from lab.campaign.hostile_requests import HostileRequest, attack, hostile_request, operations
from lead.server.app import create_app
from shared.errors import ProtocolError
from shared.protocol import (
    MAX_BACK_MESSAGE_BYTES,
    Draft,
    VocabularyId,
    parse_back_message,
    parse_lead_message,
)

KNOWN = {"s": 3}
VOCABULARY = VocabularyId(fingerprint="f", n_tokens=50, model="m")


# JSON


@pytest.mark.parametrize("make", [small, lambda rng: fitting(rng, {"text", "list", "object", "number"})])
def test_small_values_differ_and_are_the_same_for_a_seed(make):
    first, second = ([written(make(random.Random(seed))) for seed in range(300)] for _ in range(2))
    assert first == second
    assert len(set(first)) > 50


def test_raw_text_is_written_as_it_is():
    assert written({"a": [Raw("NaN"), "x"], "b": Raw("1")}) == '{"a":[NaN,"x"],"b":1}'


def test_large_values_are_json_of_about_that_size():
    texts = [large(random.Random(seed), 10_000).text for seed in range(100)]
    assert [text for text in texts if not 4_000 < len(text) < 20_000] == []
    flat = [text for text in texts if text[:2] not in {"[[", '{"'}]
    assert {type(json.loads(text)) for text in flat} == {list, str}


def test_the_same_seed_breaks_messages_in_the_same_way():
    message = {"type": "draft", "tokens": [1, 2], "nested": {"a": 1}}
    first, again = (
        [mutator.broken(message) for _ in range(500)]
        for mutator in (Mutator(random.Random(1)), Mutator(random.Random(1)))
    )
    assert first == again
    assert len(set(first)) > 200
    assert message == {"type": "draft", "tokens": [1, 2], "nested": {"a": 1}}


# Backs


@pytest.fixture
def messages():
    return HostileMessages(random.Random(1), VOCABULARY)


def parsed(frame, parse=parse_back_message):
    """The parsed frame; None if it is refused with a ProtocolError."""
    try:
        return parse(frame)
    except ProtocolError:
        return None


@pytest.mark.parametrize(
    ("kind", "bases"),
    [("sure", {3}), ("stale", {0}), ("duplicated", {3}), ("oversized", {3}), ("invalid", {3, (1 << 31) - 1})],
)
def test_drafts_get_past_the_parser(messages, kind, bases):
    frames = [messages.frame(KNOWN, kind) for _ in range(50)]
    assert {parsed(frame).base for frame in frames} == bases
    assert max(map(len, frames)) <= MAX_BACK_MESSAGE_BYTES
    assert (min(map(len, frames)) > MAX_BACK_MESSAGE_BYTES - 3000) == (kind == "oversized")


def test_most_of_the_mixture_is_read_and_none_crashes_the_parser(messages):
    assert sum(isinstance(parsed(messages.frame(KNOWN)), Draft) for _ in range(200)) > 150
    assert sum(parsed(messages.frame(KNOWN, "garbage")) is None for _ in range(2000)) > 1000


# A lead


def test_what_a_lead_says_is_read_and_its_broken_frames_are_refused_in_a_sentence():
    lead, texts = HostileLead(random.Random(1)), {}
    said = [lead.message(texts) for _ in range(1000)]
    assert sum(parsed(written(each), parse_lead_message) is not None for each in said) > 900
    broken = [Mutator(random.Random(seed)).broken(each) for seed, each in enumerate(said)]
    assert sum(parsed(each, parse_lead_message) is None for each in broken) > 300


# Clients


@pytest.fixture(scope="module")
def described():
    """The operations of the API."""
    return operations(create_app().openapi())


def test_every_operation_is_attacked_in_every_way(described):
    requests = [hostile_request(each, random.Random(seed)) for each in described for seed in range(60)]
    assert {each.path for each in requests} == {each.path for each in described}
    expected = {(False, False), (True, False), (False, True)}
    assert {(each.is_slow, each.leaves) for each in requests} == expected
    assert max(len(each.body) for each in requests) > 10_000


def test_a_value_is_put_at_its_place_with_what_is_required_beside_it(described):
    (chat,) = (each for each in described if each.path == "/v1/chat/completions" and each.places)
    places = {place.name: place for place in chat.places}
    assert {"", "logit_bias{}", "response_format.json_schema.schema"} <= places.keys()
    assert {"text", "list"} <= places["messages[].content"].kinds
    (message,) = places["messages[].content[].text"].put(5)["messages"]
    assert (message["content"][0]["text"], "role" in message) == (5, True)


async def attacked(handler, **fields):
    async with httpx.AsyncClient(transport=httpx.MockTransport(handler), base_url="http://lead") as http:
        return await attack(http, HostileRequest("POST", "/tokenize", b"the body", **fields))


@pytest.mark.parametrize(
    ("status", "text", "fails"),
    [
        *((status, "", False) for status in (200, 400, 501, 503)),
        (500, "", True),
        (200, 'data: {"error":{"type":"server_error"}}', True),
    ],
)
async def test_what_counts_as_a_failure(status, text, fails):
    assert bool(await attacked(lambda _request: httpx.Response(status, text=text))) == fails


async def test_a_slow_body_arrives_whole():
    received = []

    async def handler(request):
        received.append(await request.aread())
        return httpx.Response(200)

    await attacked(handler, is_slow=True)
    assert received == [b"the body"]
