import asyncio

import pytest

from lead.engine.client import EngineState
from lead.http.error_responses import error_response
from shared.errors import NotServingError, QueueFullError, UnavailableError

ASK = {"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}


async def test_an_unknown_path_is_404_in_openais_shape(client):
    response = await client.get("/nope")
    assert response.status_code == 404
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


async def test_a_wrong_method_is_405_in_openais_shape(client):
    response = await client.delete("/health")
    assert (response.status_code, response.json()["error"]["type"]) == (405, "invalid_request_error")


async def test_a_bug_is_500_without_a_trace_for_the_client(lead, client, monkeypatch, caplog):
    def broken():
        raise ZeroDivisionError("the inside")

    monkeypatch.setattr(lead.backs, "describe", broken)
    response = await client.get("/v1/speculation")
    assert (response.status_code, response.json()["error"]["type"]) == (500, "server_error")
    assert "the inside" not in response.text
    assert "the inside" in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("DELETE", "/v1/speculation", {"GET", "PUT", "POST"}), ("GET", "/tokenize", {"POST"})],
)
async def test_a_wrong_method_is_405_with_all_right_ones(client, method, path, allowed):
    response = await client.request(method, path)
    assert response.status_code == 405
    assert set(response.headers["Allow"].split(", ")) == allowed


async def test_a_message_that_quotes_megabytes_is_cut(client):
    name = "x" * 1_000_000
    body = {"messages": [{"role": "user", "content": "Hi"}], "logit_bias": {name: "bad"}}
    response = await client.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert len(response.text) < 10_000


# What routers are told


@pytest.mark.parametrize("path", ["/health", "/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("state", [None, EngineState.STARTING, EngineState.STOPPED])
async def test_a_lead_that_does_not_serve_sends_routers_to_another_one(lead, client, path, state):
    if state:
        lead.engine.state = state
    else:
        lead.app.state.services = None
    response = await (client.get(path) if path == "/health" else client.post(path, json=ASK))
    assert (response.status_code, NotServingError.HEADER in response.headers) == (503, True)


async def test_an_answer_that_the_end_cuts_off_may_be_asked_for_elsewhere(lead, client):
    lead.engine.hold()
    asking = asyncio.ensure_future(client.post("/v1/chat/completions", json=ASK))
    await lead.engine.submission.wait()
    lead.sequences.fail_all("the server is shutting down")
    response = await asking
    assert (response.status_code, NotServingError.HEADER in response.headers) == (503, True)


async def test_a_request_that_kills_engines_is_not_sent_on(lead, client):
    lead.engine.hold()
    asking = asyncio.ensure_future(client.post("/v1/chat/completions", json=ASK))
    await lead.engine.submission.wait()
    for _ in range(4):
        lead.engine.submissions.on_death()
        lead.engine.submissions.take_due()
    response = await asking
    assert "died 4 times" in response.json()["error"]["message"]
    assert (response.status_code, NotServingError.HEADER in response.headers) == (503, False)


@pytest.mark.parametrize("error", [QueueFullError("later"), UnavailableError("later")])
def test_what_may_be_the_requests_own_doing_is_not_sent_on(error):
    response = error_response(error)
    assert (response.status_code, NotServingError.HEADER in response.headers) == (503, False)
