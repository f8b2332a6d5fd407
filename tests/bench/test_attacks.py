"""Hostile requests: they are what they claim to be, and an answer that is no answer counts as a failure."""

import asyncio
import json
import random

import pytest

from bench.attack.client import Outcome, send
from bench.attack.places import operations
from bench.attack.requests import Attack, Attacks, Delivery
from bench.attack.values import ELEMENTS, Raw, encode, fitting, large_list, small
from bench.attacks import is_failure
from lead.server.app import create_app


@pytest.fixture(scope="module")
def described():
    """The API's description."""
    return create_app().openapi()


@pytest.fixture(scope="module")
def attacks(described):
    return Attacks(operations(described), seed=1)


def test_what_counts_as_a_failure():
    error_event = 'data: {"error":{"type":"server_error"}}'
    outcomes = {
        **{Outcome(status, 0.1): False for status in (200, 400, 501, 503)},
        **{Outcome(status, 0.1): True for status in (500, None)},
        Outcome(200, 0.1, error_event): True,
    }
    attack = Attack("POST", "/tokenize", "a test")
    assert {outcome: is_failure(attack, outcome) for outcome in outcomes} == outcomes
    left = Attack("POST", "/tokenize", "a test", delivery=Delivery.LEFT)
    assert not is_failure(left, Outcome(None, 0.1))


def test_every_operation_and_delivery_occurs(described, attacks):
    few = [attacks.number(number) for number in range(3000)]
    assert described["paths"].keys() <= {attack.path for attack in few}
    assert {attack.delivery for attack in few} == set(Delivery)


def test_large_attacks_reach_every_list_of_every_route(attacks):
    large = [str(attack) for attack in attacks.large(1000)]
    for place in ("POST /v1/responses input: ", "POST /v1/messages system: ", "POST /completion prompt: "):
        assert any(attack.startswith(place) for attack in large), place


def test_a_value_is_put_at_its_place_with_what_is_required_beside_it(described):
    chat = {str(each): each for each in operations(described)}["POST /v1/chat/completions"]
    places = {place.name: place for place in chat.places}
    assert {"", "logit_bias{}", "response_format.json_schema.schema"} <= places.keys()
    assert {"text", "list"} <= places["messages[].content"].kinds
    (message,) = places["messages[].content[].text"].put(5)["messages"]
    assert (message["content"][0]["text"], "role" in message) == (5, True)


@pytest.mark.parametrize("make", [small, lambda rng: fitting(rng, {"text", "list", "object", "number"})])
def test_small_values_differ_and_are_the_same_for_a_seed(make):
    first, second = ([encode(make(random.Random(seed))) for seed in range(300)] for _ in range(2))
    assert first == second
    assert len(set(first)) > 50


def test_raw_text_is_written_as_it_is():
    assert encode({"a": [Raw("NaN"), "x"], "b": Raw("1")}) == b'{"a":[NaN,"x"],"b":1}'


def test_large_lists_are_json_of_about_that_size():
    texts = [large_list(element, 10_000)[1].text for element in ELEMENTS]
    assert [text for text in texts if not 9_000 < len(text) < 11_000 or len(json.loads(text)) <= 10] == []


@pytest.fixture
async def server():
    """(port, what arrived): answers once it has read a whole request, or at the end of one."""
    received = bytearray()

    async def serve(reader, writer):
        while not received.endswith(b"end") and (data := await reader.read(1000)):
            received.extend(data)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
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
    outcome = await send("127.0.0.1", server[0], Attack("POST", "/x", "", b"the end", delivery=Delivery.CUT))
    assert outcome.status is None
