import itertools
import json

import pytest

from lead.chat_format.constraint import grammar_for
from lead.chat_format.output_format import ReasoningMarkers
from lead.grammar.json_schema import check_schema
from lead.grammar.lark import check_grammar
from lead.settings.limits import RequestLimits
from lead.tools.known_formats import GENERIC
from shared.errors import RequestError
from tests.lead.chat_format.cases import SCHEMA, asked, formats, template, typed_tool, with_tools

THINK = ReasoningMarkers("<think>", "</think>")
TURN = ReasoningMarkers("<|im_start|>", "<|im_start|>")
FORMATS = formats()
HERMES = template("Qwen-Qwen2.5-7B-Instruct").tool_format


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
    """Return whether a model may write this text under the grammar of a constraint and end there."""
    return lambda text, *args, **kwargs: accepts(grammar(*args, **kwargs), text)


def calls(tool_format, *names):
    return tool_format.write([(name, {"a": 1}) for name in names])


def test_free_text_has_no_grammar(grammar):
    assert grammar(asked()) is None
    assert grammar(with_tools(), HERMES) is None


def test_every_constraint_makes_a_grammar_that_may_run(vocabulary, grammar):
    for tool_format, reasoning, schema, choice in itertools.product(
        FORMATS.values(), (None, THINK, TURN), (None, SCHEMA), ("required", None)
    ):
        text = grammar(with_tools(json_schema=schema, tool_choice=choice), tool_format, reasoning)
        if text is not None:
            check_grammar(text, vocabulary, "tools")


def test_a_call_that_has_an_id_may_have_any(accepts):
    mistral = template("Mistral-Small-3.2-24B-Instruct-2506").tool_format
    written = "".join((*mistral.frame("add", call_id="a1B2c3D4e"), '{"a": 1}'))
    assert accepts(written, with_tools(tool_choice="required"), mistral)


@pytest.mark.parametrize("tool_format", FORMATS.values(), ids=FORMATS.keys())
def test_calls_are_written_as_the_models_of_the_format_do(accepts, tool_format):
    request = with_tools(tool_choice="required")
    several = [["add", "addition"]] if tool_format.between is not None else []
    for names in (["add"], ["addition"], ['odd "\\ name'], *several):
        assert accepts(calls(tool_format, *names), request, tool_format)
    assert not accepts(calls(tool_format, "subtract"), request, tool_format)
    assert not accepts(tool_format.write([("add", {})]), request, tool_format)
    assert not accepts("Hello", request, tool_format)


@pytest.mark.parametrize("tool_format", FORMATS.values(), ids=FORMATS.keys())
def test_one_call_is_one_call(accepts, tool_format):
    request = with_tools(tool_choice="required", parallel_tool_calls=False)
    assert accepts(calls(tool_format, "add"), request, tool_format)
    assert not accepts(calls(tool_format, "add", "add"), request, tool_format)


def test_an_answer_in_the_generic_format_is_json_in_any_case(accepts):
    assert accepts('{"response": "Hello"}', with_tools(), GENERIC)
    assert accepts(calls(GENERIC, "add"), with_tools(), GENERIC)
    assert not accepts("Hello", with_tools(), GENERIC)


def test_an_answer_that_must_call_has_no_content(accepts):
    assert not accepts('{"response": "Hello"}', with_tools(tool_choice="required"), GENERIC)


def test_an_answer_has_the_content_of_the_schema_or_calls(accepts):
    assert accepts(json.dumps({"a": 1}), with_tools(json_schema=SCHEMA), HERMES)
    assert accepts(calls(HERMES, "add"), with_tools(json_schema=SCHEMA), HERMES)
    assert not accepts("{}", with_tools(json_schema=SCHEMA), HERMES)


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


def test_a_tool_whose_schema_is_refused_is_named(grammar):
    schema = {"properties": {"a": {"pattern": r"\bword"}}}
    request = asked(tools=[typed_tool("add"), typed_tool("find", schema)], tool_choice="required")
    with pytest.raises(RequestError, match=r"^tools: find: #/properties/a/pattern: ") as caught:
        grammar(request, HERMES)
    assert caught.value.param == "tools"
