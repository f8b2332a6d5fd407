import asyncio
import json

import pytest

from lead.engine_client.engine_state import EngineState
from lead.http.error_responses import error_response
from lead.http.middleware.connections import only_health
from lead.server.app import create_app
from lead.settings.host_names import AllowedHosts
from lead.settings.keys import Key, Keyring, Principal, Role
from shared.errors import NotServingError, QueueFullError, UnavailableError
from tests.lead.http.middleware.asgi import asgi_request

ASK = {"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}


async def test_an_unknown_path_is_404_in_openais_shape(client):
    response = await client.get("/nope")
    assert response.status_code == 404
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


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
    [("DELETE", "/v1/speculation", {"GET", "HEAD", "PUT", "POST"}), ("GET", "/tokenize", {"POST"})],
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


async def shape_of(app, path, method="POST", **headers):
    status, _, body = await asgi_request(app, method, path, headers)
    error = json.loads(body)
    assert error["type"] == "error"
    assert set(error["error"]) == {"type", "message"}
    return status, error["error"]["type"]


async def test_refusals_of_middlewares_have_anthropics_shape_at_its_paths(lead):
    keys = Keyring([Key(Principal(Role.CLIENT, "a"), "mine"), Key(Principal(Role.BACK, "b"), "backs")])
    hosts = AllowedHosts(["lead"])
    app = create_app(lead.app.state.services, keys=keys, hosts=hosts)
    for headers, expected in (
        ({}, (401, "authentication_error")),
        ({"x-api-key": "backs"}, (403, "permission_error")),
        ({"host": "elsewhere"}, (403, "permission_error")),
    ):
        assert await shape_of(app, "/v1/messages/count_tokens", **headers) == expected
    assert await shape_of(only_health(app), "/v1/messages") == (503, "overloaded_error")


HUGE = {"content-length": "99999999", "content-type": "application/json"}


@pytest.mark.parametrize(
    ("path", "method", "headers", "expected"),
    [
        ("", "POST", {"content-length": "9", "content-type": "x"}, (415, "invalid_request_error")),
        ("", "GET", {}, (405, "invalid_request_error")),
        ("/batches", "POST", {}, (404, "not_found_error")),
        ("", "POST", HUGE, (413, "request_too_large")),
    ],
)
async def test_refusals_of_http_have_anthropics_shape_at_its_paths(lead, path, method, headers, expected):
    assert await shape_of(lead.app, f"/v1/messages{path}", method, **headers) == expected


async def test_the_length_of_an_error_is_that_of_its_shape(lead):
    _, headers, body = await asgi_request(lead.app, "GET", "/v1/messages")
    assert int(headers["content-length"]) == len(body)


async def test_a_path_that_only_begins_like_anthropics_has_openais_shape(client):
    assert "param" in (await client.post("/v1/messagesx")).json()["error"]


TEXT, NATIVE = "/v1/completions", "/completion"
TEXT_OR_IDS = "Input should be a valid string or a valid list"
NO_CONTENT = {"max_tokens": 1, "messages": [{"role": "user"}]}


@pytest.mark.parametrize(
    ("url", "fields", "message"),
    [
        (TEXT, {"prompt": None}, f"prompt: {TEXT_OR_IDS}"),
        (TEXT, {"prompt": [1, "a"]}, "prompt.1: Input should be a valid integer"),
        (TEXT, {"prompt": [[1, "a"]]}, "prompt.0.1: Input should be a valid integer"),
        (NATIVE, {"prompt": 3}, f"prompt: {TEXT_OR_IDS.replace('or', 'or a valid dictionary or')}"),
        (NATIVE, {"prompt": {}}, "prompt.prompt_string: Field required"),
        (TEXT, {"stop": 5}, f"stop: {TEXT_OR_IDS}"),
        (TEXT, {"stop": ["a", 5]}, "stop.1: Input should be a valid string"),
        (TEXT, {"logit_bias": {"str": "bad"}}, "logit_bias.str: Input should be a valid number or False"),
        (
            "/v1/chat/completions",
            {"tool_choice": {"type": "function"}},
            "tool_choice.function: Field required",
        ),
        ("/v1/messages", NO_CONTENT, "messages.0.content: Field required"),
        ("/v1/responses", {"input": 3}, f"input: {TEXT_OR_IDS}"),
    ],
)
async def test_what_no_form_of_a_field_allows_is_explained_by_the_nearest_ones(client, url, fields, message):
    needed = {TEXT: {"prompt": "x"}, "/v1/chat/completions": ASK}.get(url, {})
    response = await client.post(url, json=needed | fields)
    assert (response.status_code, response.json()["error"]["message"]) == (400, message)


async def test_a_field_that_is_missing_is_named(client):
    assert (await client.post(TEXT, json={})).json()["error"]["message"] == "prompt: Field required"


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
        lead.sequences.on_death()
        lead.sequences.take_due()
    response = await asking
    assert "deaths: 4" in response.json()["error"]["message"]
    assert (response.status_code, NotServingError.HEADER in response.headers) == (503, False)


@pytest.mark.parametrize("error", [QueueFullError("later"), UnavailableError("later")])
def test_what_may_be_the_requests_own_doing_is_not_sent_on(error):
    response = error_response(error)
    assert (response.status_code, NotServingError.HEADER in response.headers) == (503, False)
