import json

import httpx
import pytest

from lab.campaign.asking import Asker, Outcome, Tally, invalid_parts
from lab.campaign.campaign import Memory, Result
from lab.campaign.injector import Fault, Happened
from lab.campaign.requests import CHAT, MixedRequest
from lab.campaign.summary import failure_lines, holds
from lab.measuring.answer import ReceivedAnswer, ReceivedChoice

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
WITH_SCHEMA = MixedRequest(
    0, "schema", CHAT, {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}
)
WITH_TOOL = MixedRequest(0, "tools", CHAT, {"tools": [{"function": {"name": "f", "parameters": SCHEMA}}]})


def delta(index=0, reason=None, **fields):
    return {"choices": [{"index": index, "delta": fields, "finish_reason": reason}]}


def streamed(*events):
    answer = ReceivedAnswer()
    for event in events:
        answer.take(event)
    answer.done = True
    return answer


def whole(text="Hi there", reason="stop", **fields):
    choice = {"index": 0, "message": {"content": text}, "finish_reason": reason, **fields}
    return streamed({"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})


def calling(name, arguments):
    call = {"id": "random", "function": {"name": name, "arguments": arguments}}
    return streamed(
        {"choices": [{"index": 0, "message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    )


# Two answers


def test_a_streamed_tool_call_is_the_one_that_came_whole():
    first = {"index": 0, "id": "x", "function": {"name": "f", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": '{"n": 1}'}}
    answer = streamed(delta(tool_calls=[first]), delta(tool_calls=[more]), delta(reason="tool_calls"))
    assert answer.differences(calling("f", '{"n": 1}')) == []


@pytest.mark.parametrize(
    ("other", "differences"),
    [
        (whole(), []),
        (whole("Hi you"), ["text"]),
        (whole(reason="length"), ["finish_reason"]),
        (whole(logprobs={"content": [{"token": "Hi", "logprob": -0.5}]}), ["tokens"]),
        (whole(logprobs={"tokens": ["Hi"], "token_logprobs": [-0.5]}), ["tokens"]),
        (streamed(), ["choices", "n_prompt", "n_generated"]),
    ],
)
def test_a_difference_is_named(other, differences):
    assert other.differences(whole()) == differences


def test_another_log_probability_is_a_difference_in_exact_mode_alone():
    one, other = (whole(logprobs={"content": [{"token": "Hi", "logprob": each}]}) for each in (-0.5, -0.6))
    assert one.differences(other) == []
    assert one.differences(other, exact=True) == ["logprobs"]


def test_what_a_client_saw_before_it_left_begins_the_whole():
    assert streamed(delta(content="Hi t")).is_prefix_of(whole())
    assert not streamed(delta(content="Hi y")).is_prefix_of(whole())
    assert streamed().is_prefix_of(whole())


def test_what_does_not_keep_to_its_schema_or_tools_is_invalid():
    texts = {'{"n": 1}': [], '{"n": "1"}': ["schema"], "{": ["schema"]}
    assert {text: invalid_parts(whole(text), WITH_SCHEMA) for text in texts} == texts
    calls = {("f", 1): [], ("f", "1"): ["schema"], ("g", 1): ["schema"]}
    found = {call: invalid_parts(calling(call[0], json.dumps({"n": call[1]})), WITH_TOOL) for call in calls}
    assert found == calls


# One request

WHOLE = MixedRequest(0, "chat", CHAT, {"messages": []})
STREAMED = MixedRequest(0, "chat", CHAT, {"messages": [], "stream": True})
LEAVING = MixedRequest(0, "chat", CHAT, {"messages": [], "stream": True}, leaves_after=2)
BODY = {"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]}
EVENT_STREAM = {"content-type": "text/event-stream"}


def sse(*events):
    text = "".join(f"data: {each if isinstance(each, str) else json.dumps(each)}\n\n" for each in events)
    return httpx.Response(200, headers=EVENT_STREAM, text=text)


class Broken(httpx.AsyncByteStream):
    """A response that ends in the middle."""

    async def __aiter__(self):
        yield f"data: {json.dumps(delta(content='Hi'))}\n\n".encode()
        raise httpx.ReadError("reset")


@pytest.fixture
def ask():
    """A function that asks a server with these responses, one after the other: (outcome, seconds slept)."""

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


@pytest.mark.parametrize(
    ("events", "lost", "unterminated"),
    [
        ([delta(content="Hi"), "[DONE]"], False, False),
        ([delta(content="Hi")], True, True),
        ([delta(content="Hi"), {"error": {"type": "server_error"}}], True, False),
    ],
)
async def test_a_stream_is_whole_when_it_says_so(ask, events, lost, unterminated):
    outcome, _ = await ask(STREAMED, sse(*events))
    assert outcome.answer.choices[0].text == "Hi"
    assert (outcome.lost, outcome.unterminated) == (lost, unterminated)


async def test_a_stream_that_breaks_off_has_no_terminal_event(ask):
    outcome, _ = await ask(STREAMED, httpx.Response(200, headers=EVENT_STREAM, stream=Broken()))
    assert (outcome.lost, outcome.unterminated, outcome.errors) == (True, True, ["ReadError"])
    assert outcome.answer.choices[0].text == "Hi"


@pytest.mark.parametrize("request_", [WHOLE, STREAMED])
@pytest.mark.parametrize(
    ("refusal", "error", "pause"),
    [
        (httpx.Response(503, headers={"retry-after": "0.5"}), "503", 0.5),
        (httpx.ConnectError("refused"), "ConnectError", 1.0),
    ],
)
async def test_who_may_ask_again_does_so_after_a_pause(ask, request_, refusal, error, pause):
    answer = sse(delta(content="Hi"), "[DONE]") if request_.streamed else httpx.Response(200, json=BODY)
    outcome, slept = await ask(request_, refusal, answer)
    assert (outcome.lost, outcome.errors, slept) == (False, [error], [pause])


@pytest.mark.parametrize("request_", [WHOLE, STREAMED])
async def test_other_errors_are_final(ask, request_):
    outcome, _ = await ask(request_, httpx.Response(500, text="a bug"))
    assert (outcome.lost, outcome.unterminated, outcome.errors) == (True, False, ["500 a bug"])


async def test_a_client_leaves_after_as_many_events_with_text_as_planned(ask):
    outcome, _ = await ask(LEAVING, sse(*(delta(content=text) for text in "abc"), "[DONE]"))
    assert (outcome.left, outcome.lost, outcome.unterminated) == (True, False, False)
    assert outcome.answer.choices[0].text == "ab"


# All requests

REQUEST = MixedRequest(3, "stop strings", CHAT, {})


def answer(text="Hi", *, done=True):
    return ReceivedAnswer({0: ReceivedChoice(text, finish_reason="stop")}, 4, 2, done=done)


def outcome(text="Hi", *, done=True, **fields):
    return Outcome(REQUEST, 3.0, 5.0, answer(text, done=done), **fields)


def tallied(*outcomes):
    tally = Tally({3: answer()})
    for each in outcomes:
        tally.add(each)
    return tally


@pytest.mark.parametrize(
    ("outcomes", "counts", "reasons"),
    [
        ([outcome(), outcome(errors=["503"])], {"n_requests": 2, "n_tokens": 4, "errors": {"503": 1}}, []),
        ([outcome("Ho")], {"n_changed": 1, "n_lost": 0}, [("text",)]),
        (
            [outcome("H", done=False, unterminated=True)],
            {"n_changed": 0, "n_lost": 1, "n_unterminated": 1},
            [("lost", "unterminated")],
        ),
        (
            [outcome(text, done=False, left=True) for text in "Hx"],
            {"n_changed": 1, "n_lost": 0, "n_left": 2},
            [("beginning",)],
        ),
    ],
    ids=["as expected", "changed", "lost, but right so far", "right and wrong so far, of clients that left"],
)
def test_what_an_answer_counts_as(outcomes, counts, reasons):
    tally = tallied(*outcomes)
    assert {name: getattr(tally, name) for name in counts} == counts
    assert [failure.reasons for failure in tally.failures] == reasons


def happened(kind, began, ended):
    return Happened(Fault(began, kind.partition("-")[0], 0, kind, ended - began, 0.0), began, ended)


HAPPENED = [happened("link-cut", 0, 0), happened("engine-stopped", 2, 4), happened("back-killed", 5, 9)]


def test_a_campaign_holds_only_if_nothing_failed_and_nothing_runs_on():
    def result(text="Hi", n_left_running=0, failures=()):
        memory = Memory({"front": 100.0}, {"front": 110.0})
        return Result(tallied(outcome(text)), HAPPENED, memory, {}, failures, 12.0, n_left_running, "")

    assert holds(result())
    for each in (result("Ho"), result(n_left_running=1), result(failures=["status 500"])):
        assert not holds(each)


def test_a_failure_names_what_is_needed_to_ask_it_again():
    failed = tallied(outcome("Ho", errors=["503"]))
    assert failure_lines(failed, HAPPENED, "python -m bench faults --seed 5") == [
        "request 3 (stop strings), 3.0 to 5.0 s: text; errors: 503",
        "  python -m bench faults --seed 5 --only 3 --faults back-killed,engine-stopped",
    ]
