import json
import random

import pytest

from lead.chat_format.deltas import AssistantMessage
from lead.chat_format.output_format import ParserConfig
from lead.chat_format.parser import OutputParser
from lead.chat_format.request_parts import ChatMessage, TemplateInput
from lead.tools.argument_types import argument_types
from lead.tools.call_format import NAME, NUMBER, CallFormat
from tests.lead.chat_format.cases import formats, load, template

NATIVE = [name for name in load("templates.toml") if not template(name).tool_format.is_generic]
UNESCAPED = {
    "google-gemma-4-31B-it": '<|"|>',
    "google-gemma-4-31B-it-interleaved": '<|"|>',
    "LFM2.5-8B-A1B": "'",
}
"""The ends of strings that these templates write unescaped inside a string, which nobody could read."""
TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")
WORDS = [
    *("a", " two words ", "x\ny", "\n\nend\n", 'q"uo', "it's", "back\\slash", "{}", "[1, 2]", "17", "true"),
    *("é中👋", "</parameter>", "<tool_call>", "</tool_call>", "</arg_value>", "a, b", "}", "\t", "", "```"),
    '<|"|>',
]


def value(rng, kind, depth=0):
    inner = TYPES if depth < 2 else TYPES[:5]
    match kind:
        case "string":
            return "".join(rng.choices(WORDS, k=rng.randint(0, 3)))
        case "integer":
            return rng.choice([0, -7, 12345678901234567890])
        case "number":
            return rng.choice([1.5, -0.25, 1e30])
        case "boolean":
            return rng.random() < 0.5
        case "array":
            return [value(rng, rng.choice(inner), depth + 1) for _ in range(rng.randint(0, 3))]
        case "object":
            return {f"key {i}": value(rng, rng.choice(inner), depth + 1) for i in range(rng.randint(0, 3))}


def random_calls(rng, n, forbidden):
    """Calls, and the tools with the types of their arguments."""
    calls, tools = [], []
    for i in range(n):
        kinds = {f"k{j}": rng.choice(TYPES) for j in range(rng.randint(0, 4))}
        arguments = {name: value(rng, kind) for name, kind in kinds.items()}
        while forbidden and forbidden in json.dumps(arguments, ensure_ascii=False).replace('\\"', '"'):
            arguments = {name: value(rng, kind) for name, kind in kinds.items()}
        calls.append((f"{rng.choice(['add', 'mcp__files__read-file'])}{i}", arguments))
        properties = {name: {"type": kind} for name, kind in kinds.items()}
        tools.append({"name": calls[-1][0], "parameters": {"type": "object", "properties": properties}})
    return calls, [{"type": "function", "function": {"description": "", **tool}} for tool in tools]


def read(pieces, calls, tools):
    types = {tool["function"]["name"]: argument_types(tool["function"]["parameters"]) for tool in tools}
    parser = OutputParser(ParserConfig(tool_format=calls, tools=frozenset(types), types=types))
    deltas = [delta for piece in pieces for delta in parser.push(piece)]
    message = AssistantMessage.of([*deltas, *parser.finish()])
    return [(call.name, json.loads(call.arguments)) for call in message.calls]


@pytest.mark.parametrize("name", NATIVE)
def test_what_a_template_writes_as_calls_is_read_back_whole_and_in_pieces(name):
    chat, rng = template(name), random.Random(name)
    for _ in range(20):
        n = 1 if chat.tool_format.between is None else rng.randint(1, 3)
        calls, tools = random_calls(rng, n, UNESCAPED.get(name))
        asked = ChatMessage(role="user", content="questionx")
        written = [
            {"id": f"call0000{i}", "function": {"name": tool, "arguments": json.dumps(arguments)}}
            for i, (tool, arguments) in enumerate(calls)
        ]
        answer = ChatMessage(role="assistant", content="", tool_calls=written)
        listed = [] if chat.tool_format.is_described else tools
        text = chat.render(TemplateInput([asked, answer], listed, open_answer=False)).rpartition("questionx")[
            2
        ]
        starts = [at for start in (*chat.tool_format.starts, "{") if (at := text.find(start)) >= 0]
        text = text[min(starts) :]
        cuts = sorted(rng.sample(range(len(text)), min(len(text), 9)))
        pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, None], strict=True)]
        assert read([text], chat.tool_format, tools) == calls, text
        assert read(pieces, chat.tool_format, tools) == calls, pieces


@pytest.mark.parametrize("own", formats().values(), ids=formats().keys())
def test_the_name_of_a_tool_is_framed_as_it_has_to_be_written(own):
    head, _ = own.frame('a"b')
    assert ('a\\"b' if own.is_object else 'a"b') in head


def test_calls_are_numbered():
    calls = CallFormat(f"[{NAME}:{NUMBER}]", between=",")
    assert calls.write([("a", {}), ("b", {})]) == "[a:0]{},[b:1]{}"


def test_pieces_of_a_header_may_be_missing_but_not_those_between_id_and_name():
    calls = template("upstage-Solar-Open-100B").tool_format
    assert calls.header.fullmatch("x1<|tool_call:name|>add")["name"] == "add"
    assert calls.header.fullmatch("x1 add") is None


def test_a_header_ends_where_the_arguments_begin():
    calls = template("Qwen3-Coder").tool_format
    assert calls.header_length("add>\n<parameter=a>") == len("add>")
    assert calls.header_length("add") == -1


def test_the_parser_sees_every_control_token_of_a_call():
    markers = template("Mistral-Small-3.2-24B-Instruct-2506").tool_format.markers()
    assert "[CALL_ID]" in markers
