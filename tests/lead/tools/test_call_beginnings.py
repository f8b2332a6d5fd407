import re

import pytest

from lead.tools.call_beginnings import call_beginnings
from lead.tools.known_formats import GENERIC
from tests.lead.chat_format.cases import formats, template

FORMATS = {name: each for name, each in formats().items() if not each.is_generic}
NAMES = ("add", "addition")


@pytest.mark.parametrize("tool_format", FORMATS.values(), ids=FORMATS.keys())
def test_every_call_is_recognized_before_its_arguments(tool_format):
    begins, follows, is_first = call_beginnings(tool_format, NAMES)
    arguments = tool_format.write([("addition", {"key": 17})])
    before = re.match(begins if is_first else f"(?s:.*?){begins}", arguments)
    assert before["name"] == "addition"
    assert "key" not in before[0]
    if tool_format.between is not None:
        one = tool_format.write([("add", {})])
        two = tool_format.write([("add", {}), ("addition", {})])
        rest = two[len(one) - len(tool_format.after) :]
        assert re.match(follows or f"(?s:.*?){begins}", rest)["name"] == "addition"


@pytest.mark.parametrize("tool_format", FORMATS.values(), ids=FORMATS.keys())
def test_starts_and_names_alone_begin_no_call(tool_format):
    begins, _, _ = call_beginnings(tool_format, NAMES)
    for text in (*tool_format.starts, "add", "the function add(1)", '{"name": "add"}', tool_format.before):
        assert not re.search(begins, text)
    assert not re.search(begins, tool_format.write([("subtract", {"a": 1})]))


def test_white_space_does_not_matter():
    begins, _, _ = call_beginnings(template("Qwen-Qwen2.5-7B-Instruct").tool_format, NAMES)
    assert re.search(begins, '<tool_call>{"name":"add","arguments":')
    assert re.search(begins, '<tool_call>\n\n{"name":  "add",\n"arguments":')


def test_a_name_that_only_begins_like_another_is_not_that():
    begins, _, _ = call_beginnings(template("GLM-4.6").tool_format, NAMES)
    assert re.search(begins, "<tool_call>add\n")["name"] == "add"
    assert re.search(begins, "<tool_call>addition\n")["name"] == "addition"
    assert not re.search(begins, "<tool_call>add")
    assert not re.search(begins, "<tool_call>addit\n")


def test_an_answer_that_is_json_in_any_case_has_its_own_grammar():
    assert call_beginnings(GENERIC, NAMES) is None
