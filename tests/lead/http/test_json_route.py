import asyncio
import json
import threading
from typing import Annotated

import pytest
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel

from lead.http.application import application
from lead.http.json_route import JsonRoute, _ArrivingBody, parse_json
from lead.server.app import create_app
from lead.settings.keys import Key, Keyring, Principal, Role
from lead.settings.limits import RequestLimits
from lead.tokenizer.fair_queue import Client
from shared.errors import RequestError
from shared.protocol import MAX_BACK_MESSAGE_BYTES
from tests.lead.http.event_streams import client_of

JSON = {"Content-Type": "application/json"}


def limited(lead, **limits):
    return client_of(create_app(lead.app.state.services, limits=RequestLimits(**limits)))


@pytest.fixture
async def client(lead):
    async with limited(lead, max_body_bytes=1024) as client:
        yield client


async def chunked(*chunks):
    for chunk in chunks:
        yield chunk


def error_of(response):
    return response.json()["error"]["message"]


async def post(client, content=b'{"content": "hi"}', headers=JSON):
    return await client.post("/tokenize", content=content, headers=headers)


FORM = {"Content-Type": "application/x-www-form-urlencoded"}
UNTYPED = pytest.mark.parametrize("headers", [{}, FORM, {"Content-Type": ""}], ids=["none", "form", "empty"])
PAGES = [{"Origin": "http://lead"}, {"Origin": "null"}, {"Sec-Fetch-Site": "same-origin"}]


@pytest.mark.parametrize(
    "kind",
    ["application/json", "APPLICATION/JSON; charset=utf-8", "application/vnd.x+json", "application/json "],
)
async def test_json_content_types_are_accepted(client, kind):
    assert (await post(client, headers={"Content-Type": kind})).status_code == 200


@UNTYPED
async def test_a_body_of_a_client_that_names_no_type_is_json(client, headers):
    assert (await post(client, headers=headers)).status_code == 200


@UNTYPED
@pytest.mark.parametrize("page", PAGES, ids=["origin", "null", "site"])
async def test_a_body_of_a_web_page_needs_the_type(client, headers, page):
    allowed = {"Sec-Fetch-Site": "same-origin"} | page
    assert (await post(client, headers=headers | allowed)).status_code == 415
    assert (await post(client, headers=JSON | allowed)).status_code == 200


async def test_a_form_is_no_json(client):
    response = await post(client, b"content=hi", FORM)
    assert (response.status_code, "not valid JSON" in error_of(response)) == (400, True)


@pytest.mark.parametrize(
    "kind",
    [
        *("text/plain", "multipart/form-data; boundary=x", "application/jsonp", "text/json"),
        *("application/json,text/plain", "+json"),
    ],
)
async def test_other_content_types_are_refused(client, kind):
    response = await post(client, headers={"Content-Type": kind})
    assert response.status_code == 415
    assert "application/json" in error_of(response)


@pytest.mark.parametrize(("coding", "status"), [("gzip", 415), ("br, gzip", 415), ("Identity", 200)])
async def test_compressed_bodies_are_refused_as_such(client, coding, status):
    response = await post(client, headers=JSON | {"Content-Encoding": coding})
    assert response.status_code == status
    assert status == 200 or f"Content-Encoding is '{coding}'" in error_of(response)


async def test_a_request_without_a_body_needs_no_content_type(client):
    assert (await client.get("/v1/models")).status_code == 200
    assert (await client.post("/tokenize")).status_code == 400


@pytest.mark.parametrize(
    "send", [bytes, lambda body: chunked(body[:1000], body[1000:])], ids=["declared", "streamed"]
)
async def test_a_body_larger_than_the_largest_is_answered_with_413(client, send):
    largest = b'{"content": "hi"}'.ljust(1024)
    assert (await post(client, send(largest))).status_code == 200
    response = await post(client, send(largest + b" "))
    assert (response.status_code, error_of(response)) == (413, "the body has more than 1024 bytes")


async def test_reading_stops_at_the_size_limit(client):
    n_sent = 0

    async def endless():
        nonlocal n_sent
        while n_sent < 1000:
            n_sent += 1
            yield b" " * 100

    assert (await client.post("/tokenize", content=endless(), headers=JSON)).status_code == 413
    assert n_sent <= 12


async def test_bodies_from_backs_have_their_own_size_limit(lead):
    app = create_app(lead.app.state.services)
    async with client_of(app) as client:
        maximum = b"{}".ljust(MAX_BACK_MESSAGE_BYTES)
        assert (await client.post("/v1/speculation", content=maximum, headers=JSON)).status_code == 200
        assert (await client.post("/v1/speculation", content=maximum + b" ", headers=JSON)).status_code == 413


async def test_bodies_that_are_too_large_together_are_answered_with_503(lead, monkeypatch):
    monkeypatch.setattr("lead.http.json_route._MAX_BYTES", 0)  # that is twice the largest one
    begun, arrived = 0, asyncio.Event()

    async def slow():
        nonlocal begun
        yield b" " * 1000
        begun += 1
        if begun == 3:
            arrived.set()
        await arrived.wait()
        yield b"{}"

    async with limited(lead, max_body_bytes=1024) as client:
        posts = [client.post("/tokenize", content=slow(), headers=JSON) for _ in range(3)]
        statuses = sorted(each.status_code for each in await asyncio.gather(*posts))
    assert statuses == [400, 400, 503]


async def test_a_body_whose_time_has_just_run_out_may_have_to_go_for_another_clients():
    body = _ArrivingBody(seconds=0)

    async def arrive():
        async with body.timeout:
            try:
                await asyncio.Event().wait()
            finally:
                body.refuse()

    with pytest.raises(TimeoutError):
        await arrive()
    assert body.is_refused


async def test_a_body_that_waits_for_its_turn_may_have_to_go_for_another_clients(lead, monkeypatch):
    monkeypatch.setattr("lead.http.json_route._MAX_BYTES", 0)  # that is twice the largest one
    monkeypatch.setattr("lead.http.json_route._MAX_INLINE_BYTES", 0)
    keys = Keyring([Key(Principal(Role.CLIENT, name), name) for name in ("many", "one")])
    app = create_app(lead.app.state.services, keys=keys, limits=RequestLimits(max_body_bytes=1024))
    async with client_of(app) as client:

        def post(key):
            answer = client.post("/tokenize", content=b" " * 1000, headers=JSON | {"x-api-key": key})
            return asyncio.ensure_future(answer)

        async with app.state.bodies._fair_lock.hold(Client("somebody")):
            first, second, other = post("many"), post("many"), post("one")
            assert (await second).status_code == 503
        assert [(await each).status_code for each in (first, other)] == [400, 400]


async def test_a_large_body_of_another_client_does_not_wait_for_all_of_the_first(lead):
    """The bodies are invalid, so that answers come in the order of reading. Clients have keys."""
    order = []
    keys = Keyring([Key(Principal(Role.CLIENT, name), name) for name in ("many", "one")])
    app = create_app(lead.app.state.services, keys=keys)
    body = b"[" + b"1," * 50_000
    async with client_of(app) as client:

        async def post(key):
            answer = await client.post("/tokenize", content=body, headers=JSON | {"x-api-key": key})
            assert answer.status_code == 400
            order.append(key)

        await asyncio.gather(*(post("many") for _ in range(8)), post("one"))
    assert order.index("one") < 4


@pytest.mark.parametrize(
    "text",
    [
        *(json.dumps("\ud83d").encode(), json.dumps("\udc4b\ud83d").encode()),
        rb'"\\\ud83dx"',  # a backslash, then an unpaired surrogate
        *(rb'"\uD83D\u0041"', b'"\xff"', b'"a', b'{"a": }'),
        *('"a"'.encode(encoding) for encoding in ("utf-16", "utf-16-le", "utf-32")),
    ],
)
async def test_what_is_not_json_in_utf8_is_answered_with_400(client, text):
    response = await post(client, b'{"content": ' + text + b"}")
    assert response.status_code == 400
    assert error_of(response).startswith("the body is not valid JSON in UTF-8: ")


@pytest.mark.parametrize("text", [b"9" * 5000, b"[" * 100_000], ids=["5,000 digits", "100,000 levels"])
def test_json_that_the_parser_cannot_hold_is_refused(text):
    with pytest.raises(RequestError):
        parse_json(text, 80, 1_000_000)


@pytest.mark.parametrize(
    "text",
    [
        *(json.dumps("\U0001f44b").encode(), json.dumps("\U0001f44b", ensure_ascii=False).encode()),
        rb'"\\ud83d"',  # an escaped backslash and letters
        *(rb'"\u00e9\n\\"', b'"a", "content": "b"', b'"a", "extra": NaN', b'"a", "extra": 1e999'),
        b'"a", "extra": ' + b"9" * 400,
    ],
)
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf"], ids=["", "after a byte order mark"])
async def test_unusual_but_valid_json_is_accepted(client, text, before):
    assert (await post(client, before + b'{"content": ' + text + b"}")).status_code == 200


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        (b"1", 0),
        (b"[]", 1),
        (b"[" + b"[]," * 100 + b"[]]", 2),
        (b'{"a": [{"b": 1}]}', 3),
        (b'[1, {"x": [[2], [3]]}]', 4),
        (rb'["[[[[", "\"[[[["]', 1),
    ],
)
def test_nesting_counts_arrays_and_objects_within_each_other(text, depth):
    parse_json(text, depth, 1000)
    if depth:
        with pytest.raises(RequestError):
            parse_json(text, depth - 1, 1000)


@pytest.mark.parametrize(("depth", "status"), [(80, 200), (81, 400)])
async def test_nesting_is_limited(client, depth, status):
    nested = "[" * (depth - 1) + "]" * (depth - 1)
    response = await post(client, f'{{"content": "hi", "extra": {nested}}}')
    assert response.status_code == status
    assert status == 200 or error_of(response) == "the body is nested deeper than 80 levels"


async def test_the_nesting_of_a_large_body_is_limited(lead):
    body = json.dumps({"content": "x" * 100_000})[:-1] + ', "deep": ' + "[" * 100 + "]" * 100 + "}"
    async with client_of(lead.app) as client:
        response = await client.post("/tokenize", content=body, headers=JSON)
    assert error_of(response) == "the body is nested deeper than 80 levels"


def test_objects_and_arrays_are_counted_before_they_are_parsed():
    with pytest.raises(RequestError, match="more than 10 objects and arrays"):
        parse_json(b"[" + b"[]," * 10 + b"{}, not JSON", 80, 10)


@pytest.mark.parametrize("text", [b'"[[[["', rb'"a\"{{{{"', rb'"\\", "[[[["', '"語{{{{"'.encode()])
def test_brackets_in_strings_do_not_count(text):
    assert parse_json(b"[" + text + b"]", 80, 1)


@pytest.mark.parametrize("text", [b'"', b'"a\\', b"[", b'\\"'])
def test_counting_is_linear_even_where_strings_do_not_end(text):
    with pytest.raises(RequestError):  # a quadratic one would take hours
        parse_json(b"[" * 100 + text * 1_000_000, 80, 10)


@pytest.mark.parametrize("n_bytes", [0, 200_000])
async def test_only_the_first_error_is_reported(lead, n_bytes):
    body = json.dumps({"prompt": [{}] * 5000, "stop": [0] * 5000, "pad": " " * n_bytes})
    async with client_of(lead.app) as client:
        response = await client.post("/v1/completions", content=body, headers=JSON)
    assert (response.status_code, len(response.text) < 500) == (400, True), response.text


async def test_what_is_valid_in_a_large_body_is_used(lead):
    body = json.dumps({"content": "hi " * 50_000, "with_pieces": False})
    async with client_of(lead.app) as client:
        response = await client.post("/tokenize", content=body, headers=JSON)
    assert len(response.json()["tokens"]) >= 50_000


async def test_a_body_for_an_unknown_path_is_not_read(client):
    async def endless():
        raise AssertionError("was read")
        yield b""

    assert (await client.post("/nope", content=endless(), headers=JSON)).status_code == 404


def test_every_route_with_a_body_bounds_it(lead):
    routes = [context.original_route for context in iter_route_contexts(lead.app.routes)]
    with_body = [route for route in routes if getattr(route, "body_field", None)]
    assert len(with_body) > 10
    assert all(isinstance(route, JsonRoute) for route in with_body)


class Number(BaseModel):
    n: int


async def test_what_a_handler_needs_is_found_without_another_thread():
    threads = []

    def find(request: Request) -> int:
        threads.append(threading.get_ident())
        return len(request.headers["content-type"])

    router = APIRouter(route_class=JsonRoute)

    @router.post("/add")
    async def add(body: Number, found: Annotated[int, Depends(find)]) -> Response:
        return Response(str(body.n + found))

    async with client_of(application([router], with_page=False)) as client:
        response = await client.post("/add", content=b'{"n": 100}', headers=JSON)
    assert (response.text, threads) == ("116", [threading.get_ident()])
