from dataclasses import replace

import httpx
import pytest

from bench.client import Measurement, Sampling, ask, n_timed, read
from bench.prompts import Prompt
from shared.errors import ConfigError

ANSWER = {
    "choices": [{"message": {"content": "Once"}}],
    "timings": {
        "predicted_n": 9,
        "predicted_ms": 500.0,
        "predicted_per_second": 12.0,
        "draft_n": 8,
        "draft_n_accepted": 6,
    },
}
PROMPT = Prompt("stories", "Tell me a story.", 5)


def test_an_answer_is_read():
    assert read(ANSWER) == Measurement("Once", 9, 0.5, 8, 6, n_first=3)


def test_a_server_that_does_not_draft_has_no_drafts():
    timings = {"predicted_n": 2, "predicted_ms": 10.0, "predicted_per_second": 200.0}
    measurement = read({"choices": [{"message": {"content": None}}], "timings": timings})
    assert measurement == Measurement("", 2, 0.01)


@pytest.mark.parametrize(
    ("rate", "n", "what"),
    [(46.0, 23, "the lead's rate"), (78.0, 39, "llama-server's, with the first token"), (0.0, 0, "one step")],
)
def test_tokens_are_timed_after_the_first_step(rate, n, what):
    timings = {"predicted_n": 40, "predicted_ms": 500.0, "predicted_per_second": rate}
    assert n_timed(timings) == n, what


def test_each_step_gives_the_accepted_tokens_and_one_more():
    assert read(ANSWER).n_steps == 2


def test_steps_that_the_server_counted_include_the_prompts():
    assert replace(read(ANSWER), n_counted=4).n_steps == 3


def test_a_refusal_is_told_in_the_servers_words():
    transport = httpx.MockTransport(lambda _: httpx.Response(400, text="top_k: no"))
    with (
        httpx.Client(base_url="http://lead", transport=transport) as http,
        pytest.raises(ConfigError, match="400: top_k: no"),
    ):
        ask(http, PROMPT, Sampling(0.0, 1))
