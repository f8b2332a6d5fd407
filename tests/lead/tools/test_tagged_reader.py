import json

import pytest

from lead.tools.tagged_reader import TaggedReader, tagged_value
from tests.lead.chat_format.cases import template

STRING = frozenset({"string"})
XML = template("Qwen3-Coder").tool_format


def read(text, types=None, size=None, calls=XML):
    """The arguments, and the rest of the text."""
    reader = TaggedReader(calls, types or {})
    for start in range(0, len(text), size or len(text)):
        reader.push(text[start : start + (size or len(text))])
        if reader.rest is not None:
            return reader.values, reader.rest + text[start + (size or len(text)) :]
    return reader.values, None


def argument(name, value):
    return f"\n<parameter={name}>\n{value}\n</parameter>"


@pytest.mark.parametrize("size", [1, 5, None])
def test_arguments_are_read(size):
    text = argument("a", "x\ny") + argument("b", "[1, 2]") + "\n</function>\n</tool_call>"
    assert read(text, {"a": STRING}, size) == ({"a": "x\ny", "b": [1, 2]}, "\n</tool_call>")


@pytest.mark.parametrize("size", [1, None])
def test_a_call_may_have_no_arguments(size):
    assert read("\n</function>", size=size) == ({}, "")


@pytest.mark.parametrize("size", [1, 4, None])
def test_a_mark_inside_a_value_does_not_end_it(size):
    inner = "one</parameter> two\n</parameter>\nthree"
    assert read(argument("a", inner) + "</function>", {"a": STRING}, size)[0] == {"a": inner}


def test_a_mark_inside_json_does_not_end_it():
    value = json.dumps(["\n</parameter>\n<parameter=b>\n"], ensure_ascii=False).replace("\\n", "\n")
    text = argument("a", value) + "</function>"
    assert read(text, {"a": frozenset({"array"})})[0] == {"a": ["\n</parameter>\n<parameter=b>\n"]}


def test_an_argument_that_has_not_ended_is_not_whole():
    reader = TaggedReader(XML, {})
    reader.push("\n<parameter=a>\nx")
    assert not reader.is_whole


def test_other_text_ends_the_arguments():
    assert read(argument("a", "1") + "\n</function> And so on.")[1] == " And so on."


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        ("17", STRING, "17"),
        ("17", frozenset({"integer", "number"}), 17),
        ("17", frozenset({"string", "null"}), "17"),
        ("null", frozenset({"string", "null"}), None),
        ("True", frozenset({"boolean"}), True),
        ("{'a': None}", frozenset({"object"}), {"a": None}),
        ("not json", frozenset({"object"}), "not json"),
        ('"quoted"', frozenset({"string", "null"}), '"quoted"'),
    ],
)
def test_a_value_is_of_one_of_its_types_if_it_can_be(text, types, value):
    assert tagged_value(text, types) == value
