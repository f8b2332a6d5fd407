import asyncio
import json

import httpx
import pytest

from lead.http.middleware.door import Door
from lead.server.app import create_app
from lead.settings.limits import Bounds
from shared.protocol import MAX_BACK_MESSAGE_BYTES

JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def client(lead):
    app = create_app(lead.app.state.services, Door(bounds=Bounds(max_body_bytes=1024, body_seconds=0.05)))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://lead") as client:
        yield client


async def chunked(*chunks):
    for chunk in chunks:
        yield chunk


def error_of(response):
    return response.json()["error"]["message"]


@pytest.mark.parametrize(
    "kind",
    ["application/json", "APPLICATION/JSON; charset=utf-8", "application/vnd.x+json", "application/json "],
)
async def test_json_is_taken(client, kind):
    response = await client.post("/tokenize", content=b'{"content": "hi"}', headers={"Content-Type": kind})
    assert response.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{}, {"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}]
    + [
        {"Content-Type": kind}
        for kind in ("application/jsonp", "text/json", "application/json,text/plain", "+json")
    ],
)
async def test_nothing_else_is_because_pages_of_other_origins_can_send_it(client, headers):
    response = await client.post("/tokenize", content=b'{"content": "hi"}', headers=headers)
    assert response.status_code == 415
    assert "application/json" in error_of(response)


async def test_a_request_without_a_body_needs_no_type(client):
    assert (await client.get("/v1/models")).status_code == 200
    assert (await client.post("/tokenize")).status_code == 400


async def test_a_body_as_large_as_may_be_is_taken(client):
    body = b'{"content": "hi"}'.ljust(1024)
    assert (await client.post("/tokenize", content=body, headers=JSON)).status_code == 200
    assert (await client.post("/tokenize", content=chunked(body), headers=JSON)).status_code == 200


@pytest.mark.parametrize("content", [b" " * 1025, [b" " * 1000, b" " * 25]], ids=["declared", "streamed"])
async def test_a_larger_one_is_413(client, content):
    content = content if isinstance(content, bytes) else chunked(*content)
    response = await client.post("/tokenize", content=content, headers=JSON)
    assert response.status_code == 413
    assert error_of(response) == "the body has more than 1024 bytes"


async def test_no_more_is_read_than_may_be(client):
    n_sent = 0

    async def endless():
        nonlocal n_sent
        while n_sent < 1000:
            n_sent += 1
            yield b" " * 100

    assert (await client.post("/tokenize", content=endless(), headers=JSON)).status_code == 413
    assert n_sent <= 12


async def test_backs_have_a_limit_of_their_own(lead):
    app = create_app(lead.app.state.services)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://lead") as client:
        most = b"{}".ljust(MAX_BACK_MESSAGE_BYTES)
        assert (await client.post("/v1/speculation", content=most, headers=JSON)).status_code == 200
        assert (await client.post("/v1/speculation", content=most + b" ", headers=JSON)).status_code == 413


async def test_a_body_that_does_not_come_is_408(client):
    async def stuck():
        yield b"{"
        await asyncio.Event().wait()

    response = await client.post("/tokenize", content=stuck(), headers=JSON)
    assert (response.status_code, error_of(response)) == (408, "the body did not arrive within 0.05 seconds")


@pytest.mark.parametrize("content", [b'{"content": "\\ud83d"}', '{"content": "hi"}'.encode("utf-16")])
async def test_what_could_not_be_sent_back_is_refused(client, content):
    response = await client.post("/tokenize", content=content, headers=JSON)
    assert (response.status_code, error_of(response)) == (
        *(400, "the body is not UTF-8, or has half of a surrogate pair in it"),
    )


@pytest.mark.parametrize(("depth", "status"), [(80, 200), (81, 400)])
async def test_nesting_is_bounded(client, depth, status):
    nested = "[" * (depth - 1) + "]" * (depth - 1)
    content = f'{{"content": "hi", "extra": {nested}}}'
    response = await client.post("/tokenize", content=content, headers=JSON)
    assert response.status_code == status
    if status != 200:
        assert error_of(response) == "the body is nested deeper than 80 levels"


async def test_the_nesting_of_a_large_body_is_bounded_too(lead):
    body = json.dumps({"content": "x" * 100_000})[:-1] + ', "deep": ' + "[" * 100_000
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=lead.app), base_url="http://lead"
    ) as client:
        response = await client.post("/tokenize", content=body, headers=JSON)
    assert error_of(response) == "the body is nested deeper than 80 levels"
