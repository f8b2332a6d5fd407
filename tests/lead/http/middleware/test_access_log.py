import asyncio
import logging
import re

import pytest

from lead.engine_client.answer_stats import current_request
from lead.http.middleware.access_log import AccessLogMiddleware
from lead.server.app import create_app
from tests.lead.http.event_streams import client_of
from tests.lead.http.middleware.asgi import asgi_request
from tests.lead.http.middleware.test_auth import bearer, keyring

ASK = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def app(lead):
    return create_app(lead.app.state.services, keys=keyring())


@pytest.fixture
def lines(caplog):
    caplog.set_level("INFO", "lead.requests")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "lead.requests"]


async def ask(app, **fields):
    async with client_of(app, headers=bearer("the-client-key")) as client:
        return await client.post("/v1/chat/completions", json=ASK | fields)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_is_one_line_with_its_tokens_key_and_id(lead, app, lines, stream):
    lead.will_say("one two", (" three", {"n_accepted": 1, "sources": ["desk"] * 3, "rejected": [5, 6]}))
    response = await ask(app, stream=stream)
    n_prompt, n_generated = (
        len(lead.engine.submitted[0].tokens),
        len(lead.tokens("one two")) + len(lead.tokens(" three")),
    )
    (line,) = lines()
    before, after = line.split(" ms, ", 1)
    assert before.startswith("POST /v1/chat/completions 200 in ")
    figures, times = after.split(", drafted 3, accepted 1, ")
    assert figures == f"prompt {n_prompt} tokens (2 cached), generated {n_generated}"
    request = re.escape(f"client x, request {response.headers['x-request-id']}")
    assert re.fullmatch(rf"\d+\.\d tokens/s, first token after -?\d+ ms, {request}", times)


async def test_a_refused_request_is_logged(app, lines):
    _, headers, _ = await asgi_request(app, "GET", "/props")
    assert lines()[0].startswith("GET /props 401 in ")
    assert lines()[0].endswith(f"anonymous, request {headers['x-request-id']}")


async def test_what_only_looks_is_not_logged_but_a_change_is(lead, lines):
    app = create_app(lead.app.state.services)
    for path in ("/", "/health", "/v1/models", "/v1/speculation", "/props"):
        await asgi_request(app, "GET", path)
        await asgi_request(app, "HEAD", path)
    await asgi_request(app, "PUT", "/v1/speculation", {"content-type": "application/json"})
    (line,) = lines()
    assert line.startswith("PUT /v1/speculation 400 in ")


async def test_an_answer_that_the_terminal_shows_with_its_times_is_not_logged_again(lead, lines):
    app = create_app(lead.app.state.services, keys=keyring(), shows_answers=True)
    lead.will_say("one")
    await ask(app)
    assert lines() == []
    await ask(app, temperature="warm")
    assert lines()[0].startswith("POST /v1/chat/completions 400 in ")


async def test_what_another_process_answers_is_logged_there(lines):
    async def app(_scope, _receive, send):
        current_request.get().is_forwarded = True
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    await asgi_request(AccessLogMiddleware(app), "POST", "/v1/chat/completions")
    assert lines() == []


async def test_a_valid_request_id_of_the_client_is_kept(app, lines):
    _, headers, _ = await asgi_request(app, "GET", "/health", {"x-request-id": "abc-123"})
    assert headers["x-request-id"] == "abc-123"
    assert lines() == []  # asked every few seconds


@pytest.mark.parametrize("wrong", ["", "x" * 129, "two words", "new\nline", "\x1b[31m"])
async def test_an_invalid_request_id_is_replaced(app, wrong):
    _, headers, _ = await asgi_request(app, "GET", "/health", {"x-request-id": wrong})
    assert headers["x-request-id"] != wrong


async def test_a_path_cannot_break_the_log_line(app, lines):
    await asgi_request(app, "GET", "/a\n12:00 lead INFO: all is well\x1b[31m")
    assert "\n" not in lines()[0]
    assert "\x1b" not in lines()[0]


async def test_neither_texts_nor_keys_are_logged(lead, app, caplog):
    caplog.set_level("DEBUG")
    lead.will_say("a secret answer")
    await ask(app, messages=[{"role": "user", "content": "a secret question"}])
    await asgi_request(app, "GET", "/props", bearer("secret-but-wrong"))
    assert "secret" not in caplog.text
    assert "the-client-key" not in caplog.text


async def test_a_client_that_disconnects_is_logged_as_499(lead, app, lines):
    lead.engine.hold()
    asking = asyncio.ensure_future(ask(app))
    await lead.engine.submission.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert " 499 in " in lines()[0]


async def test_an_unhandled_exception_is_500_with_its_trace_only_in_the_log(caplog):
    async def app(_scope, _receive, _send):
        raise ZeroDivisionError("a bug")

    status, headers, body = await asgi_request(AccessLogMiddleware(app), "GET", "/props")
    assert status == 500
    assert b"a bug" not in body
    assert "ZeroDivisionError: a bug" in caplog.text
    assert headers["x-request-id"] in caplog.text


async def test_a_refused_back_is_logged_and_an_accepted_one_is_not(app, lines):
    await asgi_request(app, "WEBSOCKET", "/v1/speculation", bearer("the-back-key"))
    assert lines() == []
    await asgi_request(app, "WEBSOCKET", "/v1/speculation")
    assert lines()[0].startswith("WEBSOCKET /v1/speculation 401 in ")


async def test_the_log_record_has_the_figures_as_fields(lead, app, caplog):
    caplog.set_level(logging.INFO, "lead.requests")
    lead.will_say("one")
    await ask(app)
    fields = caplog.records[-1].fields()
    assert (fields["status"], fields["method"], fields["principal"]) == (200, "POST", "client x")
    assert fields["n_generated"] == len(lead.tokens("one"))
