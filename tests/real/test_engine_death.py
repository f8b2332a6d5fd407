"""Answers go on with the same text, however the engine dies, stops or hangs."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext

import httpx
import pytest

from lab.parts.processes import Program, start_lead
from tests.real.client import ENDLESS, ask, ask_until_accepted, chat, get, post, stream
from tests.real.processes import LEAD, READY, back_of, engine_of

pytestmark = pytest.mark.real

FAULTS = {"killed with a back": (signal.SIGKILL, True), "frozen without one": (signal.SIGSTOP, False)}
STORY = {"temperature": 0.8, "max_tokens": 120}
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
                    "text": {"type": "string", "minLength": 100, "maxLength": 130},
                },
                "required": ["title", "text"],
                "additionalProperties": False,
            },
        },
    },
    "max_tokens": 400,
    "temperature": 0.8,
}
ANSWERS = {
    "under penalties": {"max_tokens": 100, **PENALTIES},
    "under a grammar": SCHEMA,
    "with several choices": {"max_tokens": 100, "n": 3, "temperature": 0.8},
}


@pytest.fixture(scope="module")
def model(target, tmp_path_factory):
    """A path of the model that can be removed."""
    path = tmp_path_factory.mktemp("models") / "model.gguf"
    path.symlink_to(target)
    return path


@pytest.fixture(scope="module")
def mortal(model):
    """(lead, url) of a lead whose engine may be killed. It starts another engine."""
    lead, url = start_lead("--model", str(model), *LEAD, "--engine-timeout", "2", "--metrics")
    with lead:
        yield lead, url


@pytest.fixture(scope="module")
def story(mortal):
    """The answer to STORY during which no engine has died."""
    return ask(mortal[1], **STORY)


def hit(lead: Program, fault: signal.Signals) -> int:
    """Send a signal to the engine; return the number of lines that the lead had logged before."""
    since = lead.n_lines()
    os.kill(engine_of(lead), fault)
    return since


def n_deaths(url: str) -> int:
    """The number of this lead's engines that have died."""
    metrics = httpx.get(f"{url}/metrics", trust_env=False).text
    return int(re.search(r"^llama_duo:engine_deaths_total (\d+)", metrics, re.MULTILINE)[1])


def slots(url: str) -> list[dict[str, object]]:
    """The slots that have a sequence. The lead reports them without the engine."""
    return [slot for slot in get(url, "/slots") if slot["is_processing"]]


def n_committed(url: str) -> int:
    """The number of tokens of the running sequences."""
    return sum(slot["next_token"][0]["n_decoded"] for slot in slots(url))


@contextmanager
def asking(url: str, begun: Callable[[], bool], **fields: object) -> Iterator[Callable[[], httpx.Response]]:
    """Ask for a whole answer; yield the function that waits for it, once `begun` is true.

    An answer that is complete too early is asked for again: the lead may be fast, or the test slow.
    """
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(post, url, chat(**fields))
        while not begun():
            if answer.done():
                assert answer.result().status_code == 200, answer.result().text
                answer = threads.submit(post, url, chat(**fields))
            time.sleep(0.01)
        yield answer.result


@pytest.mark.parametrize(("fault", "has_back"), FAULTS.values(), ids=FAULTS)
def test_a_stream_goes_on_with_the_same_text(mortal, story, fault, has_back):
    lead, url = mortal
    with back_of(lead, url, "helper") if has_back else nullcontext():
        with stream(url, **STORY) as answer:
            answer.until(lambda reply: len(reply.text) > 60)
            hit(lead, fault)
            reply = answer.rest()
        if has_back:
            assert ask_until_accepted(url, **STORY).text == story.text
    assert (reply.text, reply.error, reply.done) == (story.text, None, True)
    assert (reply.n_prompt, reply.n_generated) == (story.n_prompt, story.n_generated)


@pytest.mark.parametrize("fields", ANSWERS.values(), ids=ANSWERS)
def test_a_whole_answer_goes_on_with_the_same_tokens(mortal, fields):
    lead, url = mortal
    fields = {"logprobs": True, "top_logprobs": 2, **fields}
    expected = post(url, chat(**fields)).json()
    with asking(url, lambda: n_committed(url) >= 20, **fields) as answer:
        hit(lead, signal.SIGKILL)
        body = answer().json()

    def texts(answer):
        return [(choice["message"]["content"], choice["finish_reason"]) for choice in answer["choices"]]

    def tokens(answer):
        return [[each["token"] for each in choice["logprobs"]["content"]] for choice in answer["choices"]]

    assert (texts(body), tokens(body)) == (texts(expected), tokens(expected))
    counts = ("prompt_tokens", "completion_tokens")
    assert [body["usage"][each] for each in counts] == [expected["usage"][each] for each in counts]


def test_an_engine_that_dies_while_it_reads_a_prompt_reads_it_again(mortal):
    lead, url = mortal
    fields = {"prompt": "A fox and an owl. " * 100, "max_tokens": 5, "cache_prompt": False}
    expected = ask(url, **fields)
    with asking(url, lambda: bool(slots(url)), **fields) as answer:
        hit(lead, signal.SIGKILL)
        body = answer().json()
    assert body["choices"][0]["message"]["content"] == expected.text
    assert body["usage"]["prompt_tokens"] == expected.n_prompt


def test_requests_wait_for_a_killed_engine_and_health_says_so(mortal, story, model, target):
    """Without its model no engine gets ready before health has been asked, even if the test is slow."""
    lead, url = mortal
    before = n_deaths(url)
    model.unlink()
    since = hit(lead, signal.SIGKILL)
    lead.wait_for(r"the engine .* ended with signal SIGKILL", since=since)
    health = httpx.get(f"{url}/health", trust_env=False)
    with asking(url, lambda: True, **STORY) as answer:
        model.symlink_to(target)
        body = answer().json()
    assert (health.status_code, health.json()["status"]) == (503, "restarting")
    assert int(health.headers["retry-after"]) > 0
    assert body["choices"][0]["message"]["content"] == story.text
    assert get(url, "/health") == {"status": "ok"}
    assert n_deaths(url) > before


def test_a_client_that_leaves_while_there_is_no_engine_leaves_nothing_behind(mortal):
    lead, url = mortal
    with stream(url, max_tokens=ENDLESS) as answer:
        answer.until(lambda reply: reply.text)
        since = hit(lead, signal.SIGKILL)
        lead.wait_for(r"the engine .* ended", since=since)
    lead.wait_for(READY, since=since)
    assert ask(url, max_tokens=3).done
    assert not slots(url)


def test_an_answer_fails_when_its_engine_has_died_too_often(own_lead):
    lead, url = own_lead("--max-restarts", "0")
    with stream(url, max_tokens=ENDLESS) as answer:
        answer.until(lambda reply: reply.text)
        hit(lead, signal.SIGKILL)
        reply = answer.rest()
    assert reply.error["type"] == "unavailable_error"
    assert "(deaths: 1)" in reply.error["message"]
    assert ask(url, max_tokens=3).done
