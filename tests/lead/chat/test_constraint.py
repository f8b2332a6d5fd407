import itertools
import json

import pytest

from lead.chat import output_format
from lead.chat.constraint import grammar_for
from lead.chat.output_format import ReasoningMarkers
from lead.chat.request import ConversationFields
from lead.grammar.json_schema import check_schema
from lead.grammar.lark import check_grammar
from lead.settings.limits import RequestLimits

THINK = ReasoningMarkers("<think>", "</think>")
TURN = ReasoningMarkers("<|im_start|>", "<|im_start|>")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FORMATS = [value for value in vars(output_format).values() if isinstance(value, output_format.ToolFormat)]


def asked(**fields):
    return ConversationFields.model_validate({"messages": [{"role": "user", "content": "Hi"}]} | fields)


def tool(name):
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA}}


def tools(**fields):
    return asked(tools=[tool("add"), tool("addition"), tool('odd "\\ name')], **fields)


@pytest.fixture(scope="module")
def grammar(vocabulary):
    def grammar(request, tool_format=None, reasoning=None, *, in_reasoning=False):
        return grammar_for(
            request,
            tool_format,
            reasoning,
            in_reasoning=in_reasoning,
            check=lambda schema, field: check_schema(schema, RequestLimits(), field),
            special_tokens=vocabulary.special_tokens,
        )

    return grammar


@pytest.fixture(scope="module")
def accepts(accepts, grammar):
    """Whether a model may write this text under the grammar of a constraint, and end there."""
    return lambda text, *args, **kwargs: accepts(grammar(*args, **kwargs), text)


def call(tool_format, name, arguments='{"a":1}'):
    start, end = tool_format.frame(name)
    return f"{start}{arguments}{end}"


def calls(tool_format, *names):
    inner = tool_format.between.join(call(tool_format, name) for name in names)
    return f"{tool_format.before}{inner}{tool_format.after}"


def test_free_text_has_no_grammar(grammar):
    assert grammar(asked()) is None
    assert grammar(tools(), output_format.HERMES) is None


def test_every_constraint_makes_a_grammar_that_may_run(vocabulary, grammar):
    for tool_format, reasoning, schema, choice in itertools.product(
        FORMATS, (None, THINK, TURN), (None, SCHEMA), ("required", None)
    ):
        text = grammar(tools(json_schema=schema, tool_choice=choice), tool_format, reasoning)
        if text is not None:
            check_grammar(text, vocabulary, "tools")


@pytest.mark.parametrize("tool_format", FORMATS, ids=lambda each: each.name)
def test_calls_are_written_as_the_models_of_the_format_do(accepts, tool_format):
    request = tools(tool_choice="required")
    for names in (["add"], ["addition"], ['odd "\\ name'], ["add", "addition"]):
        assert accepts(calls(tool_format, *names), request, tool_format)
    assert not accepts(calls(tool_format, "subtract"), request, tool_format)
    assert not accepts(f"{tool_format.before}{call(tool_format, 'add', '{}')}", request, tool_format)
    assert not accepts("Hello", request, tool_format)


@pytest.mark.parametrize("tool_format", FORMATS, ids=lambda each: each.name)
def test_one_call_is_one_call(accepts, tool_format):
    request = tools(tool_choice="required", parallel_tool_calls=False)
    assert accepts(calls(tool_format, "add"), request, tool_format)
    assert not accepts(calls(tool_format, "add", "add"), request, tool_format)


def test_an_answer_in_the_generic_format_is_json_in_any_case(accepts):
    assert accepts('{"response": "Hello"}', tools(), output_format.GENERIC)
    assert accepts(calls(output_format.GENERIC, "add"), tools(), output_format.GENERIC)
    assert not accepts("Hello", tools(), output_format.GENERIC)


def test_an_answer_that_must_call_has_no_content(accepts):
    assert not accepts('{"response": "Hello"}', tools(tool_choice="required"), output_format.GENERIC)


def test_an_answer_has_the_content_of_the_schema_or_calls(accepts):
    assert accepts(json.dumps({"a": 1}), tools(json_schema=SCHEMA), output_format.HERMES)
    assert accepts(calls(output_format.HERMES, "add"), tools(json_schema=SCHEMA), output_format.HERMES)
    assert not accepts("{}", tools(json_schema=SCHEMA), output_format.HERMES)


@pytest.mark.parametrize("markers", [THINK, TURN])
def test_reasoning_may_come_first(accepts, markers):
    request = asked(json_schema=SCHEMA)
    assert accepts('{"a":1}', request, reasoning=markers)
    assert accepts(f'{markers.start}why < not </{markers.end}\n\n{{"a":1}}', request, reasoning=markers)
    assert not accepts(f'{markers.start}why{{"a":1}}', request, reasoning=markers)


@pytest.mark.parametrize("markers", [THINK, TURN])
def test_reasoning_that_the_prompt_began_goes_on(accepts, markers):
    request = asked(json_schema=SCHEMA)
    assert accepts(f'why{markers.end}{{"a":1}}', request, reasoning=markers, in_reasoning=True)
    assert not accepts('{"a":1}', request, reasoning=markers, in_reasoning=True)
