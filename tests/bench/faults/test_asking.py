import json

import httpx
import pytest

from bench.faults.answers import Answer, Choice
from bench.faults.asking import Asker, Outcome, Tally
from bench.faults.requests import CHAT, MixedRequest

WHOLE = MixedRequest(0, "chat", CHAT, {"messages": []})
STREAMED = MixedRequest(0, "chat", CHAT, {"messages": [], "stream": True})
LEAVING = MixedRequest(0, "chat", CHAT, {"messages": [], "stream": True}, leaves_after=2)
BODY = {"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]}


def event(text):
    return json.dumps({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


def sse(*lines):
    text = "".join(f"data: {line}\n\n" for line in lines)
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=text)


class Broken(httpx.AsyncByteStream):
    """A response that ends in the middle."""

    async def __aiter__(self):
        yield f"data: {event('Hi')}\n\n".encode()
        raise httpx.ReadError("reset")


@pytest.fixture
def ask():
    """Ask a request of a server that gives these responses in turn: (outcome, seconds slept)."""

    async def asked(request, *responses):
        waiting, slept, ticks = iter(responses), [], iter(range(1000))

        def answer(_):
            response = next(waiting)
            if isinstance(response, Exception):
                raise response
            return response

        async def sleep(seconds):
            slept.append(seconds)

        async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://lead") as http:
            return await Asker(http, lambda: float(next(ticks)), sleep).ask(request), slept

    return asked


async def test_a_whole_answer_is_done(ask):
    outcome, _ = await ask(WHOLE, httpx.Response(200, json=BODY))
    assert outcome.answer.choices[0].text == "Hi"
    assert (outcome.lost, outcome.unterminated, outcome.errors) == (False, False, [])


async def test_a_streamed_answer_is_done_when_it_says_so(ask):
    outcome, _ = await ask(STREAMED, sse(event("Hi"), event("!"), "[DONE]"))
    assert outcome.answer.choices[0].text == "Hi!"
    assert (outcome.lost, outcome.unterminated) == (False, False)


async def test_a_stream_that_just_ends_has_no_terminal_event(ask):
    outcome, _ = await ask(STREAMED, sse(event("Hi")))
    assert (outcome.lost, outcome.unterminated) == (True, True)


async def test_a_stream_that_breaks_off_has_no_terminal_event(ask):
    broken = httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Broken())
    outcome, _ = await ask(STREAMED, broken)
    assert (outcome.lost, outcome.unterminated, outcome.errors) == (True, True, ["ReadError"])
    assert outcome.answer.choices[0].text == "Hi"


async def test_an_error_event_ends_an_answer_but_loses_it(ask):
    outcome, _ = await ask(STREAMED, sse(event("Hi"), json.dumps({"error": {"type": "server_error"}})))
    assert (outcome.lost, outcome.unterminated) == (True, False)
    assert outcome.errors == ["event server_error"]


@pytest.mark.parametrize("request_", [WHOLE, STREAMED])
async def test_503_is_tried_again_after_a_pause(ask, request_):
    answer = sse(event("Hi"), "[DONE]") if request_.streamed else httpx.Response(200, json=BODY)
    outcome, slept = await ask(request_, httpx.Response(503, headers={"retry-after": "0.5"}), answer)
    assert (outcome.lost, outcome.errors, slept) == (False, ["503"], [0.5])


async def test_a_refused_connection_is_tried_again(ask):
    outcome, slept = await ask(WHOLE, httpx.ConnectError("refused"), httpx.Response(200, json=BODY))
    assert (outcome.lost, outcome.errors, slept) == (False, ["ConnectError"], [1.0])


@pytest.mark.parametrize("request_", [WHOLE, STREAMED])
async def test_other_errors_are_final(ask, request_):
    outcome, _ = await ask(request_, httpx.Response(500, text="a bug"))
    assert (outcome.lost, outcome.unterminated, outcome.errors) == (True, False, ["500 a bug"])


async def test_a_client_leaves_after_as_many_events_with_text_as_planned(ask):
    outcome, _ = await ask(LEAVING, sse(event("a"), event("b"), event("c"), "[DONE]"))
    assert (outcome.left, outcome.lost, outcome.unterminated) == (True, False, False)
    assert outcome.answer.choices[0].text == "ab"


# The sums of all

REQUEST = MixedRequest(3, "chat", CHAT, {})


def answer(text="Hi", *, done=True):
    return Answer({0: Choice(text, finish_reason="stop")}, 4, 2, done=done)


def outcome(text="Hi", *, done=True, **fields):
    return Outcome(REQUEST, 1.0, 4.0, answer(text, done=done), **fields)


def tallied(*outcomes):
    tally = Tally({3: answer()})
    for each in outcomes:
        tally.add(each)
    return tally


def test_an_answer_as_expected_is_no_failure():
    tally = tallied(outcome(), outcome(errors=["503"]))
    assert (tally.n_requests, tally.n_tokens, tally.failures) == (2, 4, [])
    assert tally.errors == {"503": 1}


def test_a_changed_answer_is_a_failure_with_what_differs():
    tally = tallied(outcome("Ho"))
    assert (tally.n_changed, tally.n_lost) == (1, 0)
    assert tally.failures[0].reasons == ("text",)


def test_an_answer_that_is_lost_is_not_also_changed_if_it_began_right():
    tally = tallied(outcome("H", done=False, unterminated=True))
    assert (tally.n_changed, tally.n_lost, tally.n_unterminated) == (0, 1, 1)
    assert tally.failures[0].reasons == ("lost", "unterminated")


def test_a_client_that_left_has_lost_nothing_but_saw_the_right_beginning():
    tally = tallied(outcome("H", done=False, left=True), outcome("x", done=False, left=True))
    assert (tally.n_left, tally.n_lost, tally.n_changed) == (2, 0, 1)
    assert [failure.reasons for failure in tally.failures] == [("beginning",)]


def test_the_longest_pause_and_answer_are_kept():
    tally = tallied(outcome(longest_pause=2.0), outcome(longest_pause=1.0))
    assert (tally.longest_pause, tally.longest_answer) == (2.0, 3.0)
