"""A streamed answer is read and timed, from any server."""

import json
from dataclasses import replace

import httpx
import pytest

from lab.measuring.answer import ReceivedAnswer
from lab.measuring.measured_answer import MeasuredAnswer, Sampling, ask, measured, n_timed
from lab.measuring.questions import ChatQuestion
from shared.errors import ConfigError

QUESTION = ChatQuestion("chat", "And now?", 7, (("user", "Hi"), ("assistant", "Hello")))
PLAIN = Sampling(0.5, 16)
TIMINGS = {
    "predicted_n": 9,
    "predicted_ms": 500.0,
    "predicted_per_second": 12.0,
    "draft_n": 8,
    "draft_n_accepted": 6,
}


def text(content, name="content"):
    return {"choices": [{"delta": {name: content}}]}


def answered(*events):
    """The answer that pairs of (event, time) give."""
    answer = ReceivedAnswer(asked_at=1.0)
    for event, at in events:
        answer.take({"choices": []} | event, at)
    return answer


def test_a_server_that_states_its_times_is_believed():
    found = measured(answered((text("Once"), 3.0), ({"timings": TIMINGS}, 4.0)))
    assert found == MeasuredAnswer("Once", 9, 0.5, 8, 6, n_first=3, first_seconds=2.0)
    assert (found.n_steps, replace(found, n_counted=4).n_steps) == (2, 3)


def test_another_server_is_timed_by_the_clock():
    usage = {"completion_tokens": 5}
    answer = answered((text("a"), 2.0), (text("b"), 4.0), ({"usage": usage}, 9.0))
    assert measured(answer) == MeasuredAnswer("ab", 5, 2.0, first_seconds=1.0)
    assert measured(answer).n_timed == 4


@pytest.mark.parametrize(
    ("rate", "n", "what"),
    [(46.0, 23, "the lead's rate"), (78.0, 39, "llama-server's, with the first token"), (0.0, 0, "one step")],
)
def test_tokens_are_timed_after_the_first_step(rate, n, what):
    timings = {"predicted_n": 40, "predicted_ms": 500.0, "predicted_per_second": rate}
    assert n_timed(timings) == n, what


def test_reasoning_and_calls_of_tools_are_text():
    calls = {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "{}"}}]}}]}
    assert answered((text("why", "reasoning_content"), 2.0), (calls, 3.0)).text == "why{}"


# Asking


def asked(respond, sampling=PLAIN):
    """The measurement of an answer, and the body of its request."""
    bodies = []

    def handle(request):
        bodies.append(json.loads(request.content))
        return respond()

    with httpx.Client(base_url="http://lead", transport=httpx.MockTransport(handle)) as http:
        return ask(http, QUESTION, sampling), bodies[0]


def stream(*events):
    lines = [*map(json.dumps, events), "[DONE]"]
    content = "".join(f"data: {line}\n\n" for line in lines)
    return httpx.Response(200, content=content, headers={"content-type": "text/event-stream"})


def test_a_conversation_is_asked_with_the_fields_of_the_configuration():
    sampling = Sampling(0.5, 16, default_filters=True, fields={"cache_prompt": False})
    found, body = asked(lambda: stream(text("Now."), {"choices": [], "timings": TIMINGS}), sampling)
    assert (found.text, found.n_tokens) == ("Now.", 9)
    assert [each["content"] for each in body["messages"]] == ["Hi", "Hello", "And now?"]
    assert (body["temperature"], body["max_tokens"], body["seed"]) == (0.5, 16, 7)
    assert body["cache_prompt"] is False
    assert "top_k" not in body


@pytest.mark.parametrize(
    ("respond", "message"),
    [
        (lambda: httpx.Response(400, json={"error": {"message": "too long"}}), "too long"),
        (lambda: stream({"error": {"message": "died"}}), "died"),
        (lambda: (_ for _ in ()).throw(httpx.ConnectError("refused")), "does not answer: refused"),
        (lambda: stream(text("Hello")), "the number of tokens"),
        (
            lambda: httpx.Response(200, content="data: {\n\n", headers={"content-type": "text/event-stream"}),
            "does not answer: EOF",
        ),
    ],
)
def test_what_goes_wrong_is_said_in_a_sentence(respond, message):
    with pytest.raises(ConfigError, match=message):
        asked(respond)
