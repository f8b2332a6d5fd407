import pytest

from lead.chat import tool_formats
from lead.chat.constraint import Demand, constrain
from lead.chat.reasoning import ReasoningMarkers
from lead.chat.tools import Tool
from lead.grammar import check_grammar, schema_to_gbnf
from lead.settings.limits import RequestLimits

LIMITS = RequestLimits()
THINK = ReasoningMarkers("<think>", "</think>")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def tool(name):
    return Tool.model_validate({"type": "function", "function": {"name": name, "parameters": SCHEMA}})


def grammar(demand, own=None, thinking=None, *, opened=False):
    return constrain(
        demand,
        own,
        thinking,
        opened=opened,
        convert=lambda schema, field: schema_to_gbnf(schema, LIMITS, field),
    )


def test_free_text_has_no_grammar():
    assert grammar(Demand()) is None
    assert grammar(Demand(tools=[tool("add")]), tool_formats.HERMES) is None


@pytest.mark.parametrize("must_call", [True, False])
@pytest.mark.parametrize("schema", [None, SCHEMA])
@pytest.mark.parametrize("thinking", [None, THINK])
@pytest.mark.parametrize(
    "own",
    [value for value in vars(tool_formats).values() if isinstance(value, tool_formats.ToolFormat)],
    ids=lambda f: f.name,
)
def test_every_demand_makes_a_grammar_that_llama_cpp_takes(own, must_call, schema, thinking):
    demand = Demand(schema=schema, tools=[tool("add"), tool('odd "\\ name')], must_call=must_call)
    text = grammar(demand, own, thinking)
    if text is not None:
        check_grammar(text, LIMITS)


def test_a_generic_answer_is_always_json():
    text = grammar(Demand(tools=[tool("add")]), tool_formats.GENERIC)
    assert '"{\\"response\\": "' in text
    assert '"{\\"tool_calls\\": ["' in text


def test_who_must_call_cannot_just_talk():
    assert "response" not in grammar(Demand(tools=[tool("add")], must_call=True), tool_formats.GENERIC)


def test_one_call_is_one_call():
    assert ")*" in grammar(Demand(tools=[tool("add")], must_call=True), tool_formats.HERMES).splitlines()[0]
    single = grammar(Demand(tools=[tool("add")], must_call=True, several=False), tool_formats.HERMES)
    assert ")*" not in single.splitlines()[0]


def test_reasoning_may_come_first_or_goes_on():
    demand = Demand(schema=SCHEMA)
    assert grammar(demand, thinking=THINK).startswith('root ::= ("<think>" thinking)? (')
    assert grammar(demand, thinking=THINK, opened=True).startswith("root ::= thinking (")
