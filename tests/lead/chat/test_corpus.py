import codecs
import json

import pytest

from lead.chat.deltas import AssistantMessage
from lead.chat.output_format import ParserConfig
from lead.chat.parser import OutputParser
from lead.chat.request_parts import ChatMessage
from lead.chat.template import Conversation
from tests.lead.chat.cases import CASES, HELLO, load, template, tool

TEMPLATES = load("templates.toml")
CALL = {"id": "call00001", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
CALLS_AS_TEXT = {"ibm-granite-granite-3.3-2B-Instruct", "Kimi-K2-Instruct", "Kimi-K2-Thinking"}
"""Granite's template renders no calls; Kimi's use `list.append`, which the sandbox does not allow."""
IDS = [f"{case.template}-{i}" for i, case in enumerate(CASES)]


def parse(config, pieces):
    parser, deltas = OutputParser(config), []
    for piece in pieces:
        deltas += parser.push(piece)
    return AssistantMessage.of([*deltas, *parser.finish()])


def outcome(message, case):
    calls = [(call.name, json.loads(call.arguments)) for call in message.calls]
    return message.content, message.reasoning, calls, case.ids and [call.id for call in message.calls]


@pytest.mark.parametrize("name", TEMPLATES)
def test_format_reasoning_and_capabilities_of_each_template_are_detected(name):
    chat, expected = template(name), TEMPLATES[name]
    capabilities = chat.capabilities
    assert chat.tool_format.name == expected["tool_format"]
    assert ([chat.reasoning.start, chat.reasoning.end] if chat.reasoning else []) == expected["reasoning"]
    assert [each for each in expected["capabilities"] if not getattr(capabilities, each)] == []
    assert len(expected["capabilities"]) == sum(
        getattr(capabilities, each) for each in capabilities.__slots__ if each != "no_tools_is_none"
    )


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_each_familys_output_is_parsed(case):
    assert outcome(parse(case.config(), [case.text()]), case) == case.expected


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_result_does_not_depend_on_where_the_text_is_split(case):
    config, text = case.config(), case.text()
    assert outcome(parse(config, text), case) == case.expected  # each character by itself
    for i in range(1, len(text)):
        assert outcome(parse(config, [text[:i], text[i:]]), case) == case.expected, (text[:i], text[i:])


@pytest.mark.parametrize("case", [case for case in CASES if not case.output.isascii()])
def test_the_result_does_not_depend_on_where_the_bytes_are_split(case):
    config, data = case.config(), case.text().encode()
    for i in range(1, len(data)):
        decoder = codecs.getincrementaldecoder("utf-8")()
        pieces = [decoder.decode(data[:i]), decoder.decode(data[i:])]
        assert outcome(parse(config, pieces), case) == case.expected, data[:i]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_an_output_that_is_cut_off_anywhere_keeps_what_is_certain(case):
    config, text = case.config(), case.text()
    whole = parse(config, [text])
    for i in range(len(text)):
        cut = parse(config, [text[:i]])
        assert len(cut.calls) <= len(whole.calls)
        assert [call.name for call in cut.calls] == [call.name for call in whole.calls[: len(cut.calls)]]


@pytest.mark.parametrize("name", TEMPLATES)
def test_an_answer_without_markers_is_content_with_every_template(name):
    chat = template(name)
    prompt = chat.render(Conversation([ChatMessage(**HELLO)]))
    opened = chat.reasoning is not None and chat.reasoning.is_open(prompt)
    config = ParserConfig(reasoning=chat.reasoning, in_reasoning=opened, ignored_markers=chat.ignored_markers)
    text = f"Hm.{chat.reasoning.end}Yes, no." if opened else "Yes, no."
    message = parse(config, text)
    assert (message.reasoning, message.content) == ("Hm." if opened else "", "Yes, no.")


@pytest.mark.parametrize(
    "name",
    [n for n in TEMPLATES if TEMPLATES[n]["tool_format"] != "generic" and n not in CALLS_AS_TEXT],
)
def test_a_call_as_the_template_itself_writes_it_is_parsed(name):
    chat = template(name)
    user, call = ChatMessage(**HELLO), ChatMessage(role="assistant", content="", tool_calls=[CALL])
    result = ChatMessage(role="tool", content="2", tool_call_id=CALL["id"], name="add")
    conversation = Conversation([user, call, result], [tool("add")], open_answer=False)
    rendered = chat.render(conversation)
    config = ParserConfig(chat.reasoning, tool_format=chat.tool_format, tools=frozenset({"add"}))
    answers = rendered[rendered.rindex(HELLO["content"]) :]
    starts = (*chat.tool_format.call_starts, '{"name"')
    at = min(at for start in starts if (at := answers.find(start)) >= 0)
    message = parse(config, [answers[at:]])
    assert [(each.name, json.loads(each.arguments)) for each in message.calls[:1]] == [("add", {"a": 1})]
