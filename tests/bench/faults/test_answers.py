import json

import pytest

from bench.faults.answers import Answer, invalid_parts
from bench.faults.requests import CHAT, MixedRequest

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
WITH_SCHEMA = MixedRequest(
    0, "schema", CHAT, {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}
)
WITH_TOOL = MixedRequest(0, "tools", CHAT, {"tools": [{"function": {"name": "f", "parameters": SCHEMA}}]})


def delta(index=0, reason=None, **fields):
    return {"choices": [{"index": index, "delta": fields, "finish_reason": reason}]}


def streamed(*events):
    answer = Answer()
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


def test_the_parts_of_a_stream_are_one_text():
    answer = streamed(delta(content="Hi "), delta(content="there"), delta(reason="stop"))
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("Hi there", "stop")


def test_a_streamed_tool_call_is_the_one_that_came_whole():
    first = {"index": 0, "id": "x", "function": {"name": "f", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": '{"n": 1}'}}
    answer = streamed(delta(tool_calls=[first]), delta(tool_calls=[more]), delta(reason="tool_calls"))
    assert answer.differences(calling("f", '{"n": 1}')) == []


def test_answers_of_several_choices_are_kept_apart():
    answer = streamed(delta(0, content="a"), delta(1, content="b"), delta(0, content="c"))
    assert {index: choice.text for index, choice in answer.choices.items()} == {0: "ac", 1: "b"}


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (whole("Hi you"), "text"),
        (whole(reason="length"), "finish_reason"),
        (whole(logprobs={"content": [{"token": "Hi", "logprob": -0.5}]}), "tokens"),
        (whole(logprobs={"tokens": ["Hi"], "token_logprobs": [-0.5]}), "tokens"),
    ],
)
def test_a_difference_is_named(other, difference):
    assert other.differences(whole()) == [difference]


def test_equal_answers_do_not_differ():
    assert whole().differences(whole()) == []


def test_another_log_probability_is_a_difference_in_exact_mode_alone():
    one, other = (whole(logprobs={"content": [{"token": "Hi", "logprob": each}]}) for each in (-0.5, -0.6))
    assert one.differences(other) == []
    assert one.differences(other, exact=True) == ["logprobs"]


def test_a_missing_choice_and_another_usage_are_differences():
    answer = streamed(delta(0, content="a"), delta(1, content="b"))
    assert answer.differences(streamed(delta(0, content="a"))) == ["choices"]
    assert streamed().differences(whole()) == ["choices", "n_prompt", "n_generated"]


def test_what_a_client_saw_before_it_left_begins_the_whole():
    assert streamed(delta(content="Hi t")).begins(whole())
    assert not streamed(delta(content="Hi y")).begins(whole())
    assert streamed().begins(whole())


@pytest.mark.parametrize(
    ("text", "broken"), [('{"n": 1}', []), ('{"n": "1"}', ["schema"]), ("{", ["schema"])]
)
def test_finished_answers_are_valid_against_their_schema(text, broken):
    assert invalid_parts(whole(text), WITH_SCHEMA) == broken


@pytest.mark.parametrize(
    ("name", "n", "broken"), [("f", 1, []), ("f", "1", ["schema"]), ("g", 1, ["schema"])]
)
def test_calls_are_of_known_tools_with_valid_arguments(name, n, broken):
    assert invalid_parts(calling(name, json.dumps({"n": n})), WITH_TOOL) == broken
