"""Whatever becomes of the engine, answers go on with the text that they have without it."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from bench.processes import Program
from tests.real.client import ENDLESS, Reply, ask, chat, post, stream
from tests.real.processes import back_of, engine_of

pytestmark = pytest.mark.real

FAULTS = pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV], ids=str)
BACKS = pytest.mark.parametrize("n_backs", [0, 1])
PENALTIES = {"temperature": 0.8, "repeat_penalty": 1.3, "frequency_penalty": 0.4, "dry_multiplier": 0.8}
SCHEMA = {
    "response_format": {
        "type": "json_schema",
        "json_schema": {
            "name": "story",
            "schema": {
                "type": "object",
                "properties": {
                    "title": {"type": "string", "minLength": 60, "maxLength": 80},
                    "text": {"type": "string", "minLength": 200, "maxLength": 250},
                },
                "required": ["title", "text"],
                "additionalProperties": False,
            },
        },
    },
    "max_tokens": 400,
    "temperature": 0.8,
}


def hit(lead: Program, fault: signal.Signals) -> int:
    """Returns the number of lines that the lead had logged before."""
    since = lead.n_lines()
    os.kill(engine_of(lead), fault)
    return since


@contextmanager
def backs_of(lead: Program, url: str, n: int) -> Iterator[None]:
    with ExitStack() as stack:
        for i in range(n):
            stack.enter_context(back_of(lead, url, f"helper-{i}"))
        yield


def n_committed(url: str) -> int:
    """Tokens that the running sequences have, as /slots reports them; it does not need the engine."""
    slots = httpx.get(f"{url}/slots", trust_env=False).json()
    return sum(slot["next_token"][0]["n_decoded"] for slot in slots if slot["is_processing"])


def in_mid_answer(url: str, fields: dict[str, object], act: Callable[[], object]) -> dict[str, object]:
    """A whole answer; `act` happens while it is generated."""
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(post, url, chat(**fields))
        while n_committed(url) < 20:
            assert not asking.done(), asking.result().text
        act()
        body: dict[str, object] = asking.result().json()
    return body


@FAULTS
@BACKS
def test_a_stream_goes_on_with_the_same_text(own_lead, fault, n_backs):
    lead, url = own_lead("--engine-timeout", "5")
    expected = ask(url, temperature=0.8, max_tokens=200)
    with (
        backs_of(lead, url, n_backs),
        stream(url, temperature=0.8, max_tokens=200) as answer,
    ):
        answer.until(lambda reply: len(reply.text) > 60)
        hit(lead, fault)
        reply = answer.rest()
    assert (reply.text, reply.error, reply.done) == (expected.text, None, True)
    assert (reply.n_prompt, reply.n_generated) == (expected.n_prompt, expected.n_generated)


@pytest.mark.parametrize("fields", [PENALTIES, SCHEMA, {"n": 3, "temperature": 0.8}], ids=str)
def test_a_whole_answer_is_the_same_under_penalties_grammars_and_with_several_choices(own_lead, fields):
    lead, url = own_lead()
    fields = {"max_tokens": 200, "logprobs": True, "top_logprobs": 2, **fields}
    expected = post(url, chat(**fields)).json()
    body = in_mid_answer(url, fields, lambda: hit(lead, signal.SIGKILL))

    def texts(answer):
        return [(choice["message"]["content"], choice["finish_reason"]) for choice in answer["choices"]]

    def tokens(answer):
        return [[each["token"] for each in choice["logprobs"]["content"]] for choice in answer["choices"]]

    assert (texts(body), tokens(body)) == (texts(expected), tokens(expected))
    counts = ("prompt_tokens", "completion_tokens")
    assert [body["usage"][each] for each in counts] == [expected["usage"][each] for each in counts]


def test_an_engine_that_dies_while_it_reads_a_prompt_reads_it_again(own_lead):
    lead, url = own_lead("--ctx-size", "8192")
    prompt = "A fox and an owl. " * 200
    expected = ask(url, prompt=prompt, max_tokens=20)
    with ThreadPoolExecutor(1) as threads:
        engine = engine_of(lead)
        os.kill(engine, signal.SIGSTOP)
        asking = threads.submit(ask, url, prompt=prompt, max_tokens=20, cache_prompt=False)
        os.kill(engine, signal.SIGKILL)
        reply: Reply = asking.result()
    assert reply.text == expected.text


def test_requests_wait_for_a_killed_engine_and_health_says_so(own_lead):
    lead, url = own_lead("--metrics")
    expected = ask(url)
    since = hit(lead, signal.SIGKILL)
    lead.wait_for(r"the engine .* ended with signal SIGKILL", since=since)
    health = httpx.get(f"{url}/health", trust_env=False)
    reply = ask(url)
    assert (health.status_code, health.json()["status"]) == (503, "restarting")
    assert int(health.headers["retry-after"]) > 0
    assert reply.text == expected.text
    assert httpx.get(f"{url}/health", trust_env=False).json() == {"status": "ok"}
    assert "llama_duo:engine_deaths_total 1.0" in httpx.get(f"{url}/metrics", trust_env=False).text


def test_a_client_that_leaves_while_there_is_no_engine_leaves_nothing_behind(own_lead):
    lead, url = own_lead()
    with stream(url, max_tokens=ENDLESS) as answer:
        answer.until(lambda reply: reply.text)
        since = hit(lead, signal.SIGKILL)
        lead.wait_for(r"the engine .* ended", since=since)
    lead.wait_for(r" ready: ", since=since)
    assert ask(url, max_tokens=3).done
    slots = httpx.get(f"{url}/slots", trust_env=False).json()
    assert not any(slot["is_processing"] for slot in slots)


def test_an_answer_fails_when_its_engine_has_died_too_often(own_lead):
    lead, url = own_lead("--max-restarts", "1")
    with stream(url, max_tokens=ENDLESS) as answer:
        answer.until(lambda reply: reply.text)
        since = hit(lead, signal.SIGKILL)
        lead.wait_for(r" ready: ", since=since)
        n = len(answer.reply.text)
        answer.until(lambda reply: len(reply.text) > n + 200)
        hit(lead, signal.SIGKILL)
        reply = answer.rest()
    assert reply.error["type"] == "unavailable_error"
    assert "has died 2 times" in reply.error["message"]
    assert ask(url, max_tokens=3).done
