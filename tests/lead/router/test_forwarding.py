import asyncio
import json
from urllib.parse import unquote

import httpx
import pytest

from lead.settings.keys import ANYONE
from shared.errors import NotServingError
from tests.lead.router.conftest import echo
from tests.lead.router.fakes import FakeProcess, until


async def test_a_request_and_its_answer_pass_unchanged(routed):
    house = await routed()
    answer = await house.client.post(
        "/v1/x%2Fy?q=1",
        content=b'{"model": "a" }',
        headers={"x-mine": "1", "content-type": "application/json"},
    )
    assert (answer.status_code, answer.headers["x-model"]) == (201, "yes")
    told = answer.json()
    assert (told["path"], told["query"], told["method"]) == ("/v1/x/y", "q=1", "POST")
    assert told["body"] == '{"model": "a" }'
    assert told["headers"]["x-mine"] == "1"


async def test_a_header_passes_in_any_encoding(routed):
    house = await routed()
    names = {"utf-8": "café".encode(), "latin-1": "café".encode("latin-1")}
    headers = {f"x-{encoding}".encode(): value for encoding, value in names.items()}
    told = (await house.client.post("/x", json={"model": "a"}, headers=headers)).json()["headers"]
    assert {encoding: told[f"x-{encoding}"].encode("latin-1") for encoding in names} == names


@pytest.mark.parametrize("path", ["/x/../v1/speculation", "/./props", "//props", "/x/%2e%2e/props"])
async def test_a_path_passes_as_it_was_sent(routed, path):
    """Otherwise a model might answer at another path than the path that was authorized."""
    house = await routed()
    answer = await house.client.get("/", extensions={"target": f"{path}?model=a".encode()})
    assert answer.json()["path"] == unquote(path)


async def test_the_model_is_told_who_asks(routed):
    house = await routed()
    claims = {"authorization": "Bearer me", "x-api-key": "me", "x-forwarded-for": "me", "x-request-id": "me"}
    told = (await house.client.get("/x?model=a", headers=claims)).json()
    assert told["headers"]["authorization"] == f"Bearer of {ANYONE}"
    assert "me" not in told["headers"].values()


async def test_a_stream_arrives_part_by_part_and_is_counted_while_it_runs(routed):
    house = await routed()
    arrived, may_go_on, forwarder = [], asyncio.Event(), house.services.forwarder
    app = echo()
    app.state.after_part = may_go_on.wait
    house.house.make = lambda: FakeProcess(app)
    async with house.client.stream("POST", "/x", json={"model": "a", "stream": True}) as answer:
        async for part in answer.aiter_raw():
            arrived.append(part)
            assert len(forwarder) == 1 or len(arrived) == 2
            may_go_on.set()
    assert arrived == [b"data: 1\n\n", b"data: 2\n\n"]
    await until(lambda: not len(forwarder))


@pytest.fixture
def die():
    """Make a process die while a request waits for it."""
    dying = []

    async def die(process):
        dying.append(asyncio.ensure_future(process.die()))
        await asyncio.Event().wait()

    return die


async def test_a_model_that_dies_before_it_answers_is_started_and_asked_again(routed, die):
    house = await routed()
    apps = [echo(), echo()]
    house.house.make = lambda: FakeProcess(apps[len(house.house.processes)])
    apps[0].middleware("http")(lambda *_: die(house["a"]))
    answer = await house.ask(text="again")
    assert answer.status_code == 201
    assert json.loads(answer.json()["body"])["text"] == "again"


async def test_a_stream_that_breaks_off_ends_with_an_error_event(routed, die):
    house = await routed()
    app = echo()
    app.state.after_part = lambda: die(house["a"])
    house.house.make = lambda: FakeProcess(app)
    answer = await house.ask(stream=True)
    first, last = answer.text.strip().split("\n\n")
    assert first == "data: 1"
    assert "ended while it answered" in json.loads(last.removeprefix("data: "))["error"]["message"]


async def test_a_model_that_says_that_it_serves_nobody_is_asked_again(routed, monkeypatch):
    monkeypatch.setattr("lead.router.forwarding._PAUSE_SECONDS", 0.01)
    house = await routed()
    app = echo()
    refused = []

    @app.middleware("http")
    async def refuse_once(request, call_next):
        answer = await call_next(request)
        if not refused:
            refused.append(1)
            answer.status_code = 503
            answer.headers[NotServingError.HEADER] = "true"
        return answer

    house.house.make = lambda: FakeProcess(app)
    assert (await house.ask()).status_code == 201


async def test_a_request_that_kills_every_process_is_given_up(routed, die):
    house = await routed()

    def make():
        process = FakeProcess(echo())
        process.app.middleware("http")(lambda *_: die(process))
        return process

    house.house.make = make
    answer = await house.ask()
    assert answer.status_code == 503
    assert "ended 5 times" in answer.json()["error"]["message"]


async def test_a_client_that_leaves_stops_the_model_and_gives_it_back(routed):
    house = await routed()
    app, begun, stopped = echo(), asyncio.Event(), asyncio.Event()

    @app.middleware("http")
    async def slow(request, call_next):
        begun.set()
        while (await request.receive())["type"] != "http.disconnect":
            pass
        stopped.set()
        return await call_next(request)

    house.house.make = lambda: FakeProcess(app)
    asking = asyncio.ensure_future(house.ask())
    await begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await stopped.wait()
    await until(lambda: not house.host.state("a").n_running)
    assert len(house.services.forwarder) == 0


async def test_who_waits_at_the_end_is_told_so(routed):
    house = await routed()
    process = FakeProcess(echo())
    process.may_load.clear()
    house.house.make = lambda: process
    asking = asyncio.ensure_future(house.ask())
    await until(lambda: house.host.pool.n_waiting)
    house.services.forwarder.fail_all("the server is shutting down")
    answer: httpx.Response = await asking
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == "the server is shutting down"
