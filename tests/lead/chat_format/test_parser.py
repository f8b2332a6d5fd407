import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.chat_format import markers
from lead.chat_format.deltas import AssistantMessage, Content, Reasoning, ToolCallArguments, ToolCallStart
from lead.chat_format.output_format import ParserConfig, ReasoningMarkers
from lead.chat_format.parser import OutputParser
from lead.tools.json_stream import ValueScanner
from lead.tools.known_formats import GENERIC
from tests.lead.chat_format.cases import formats, template

HERMES = template("Qwen-Qwen2.5-7B-Instruct").tool_format
LLAMA = template("meta-llama-Llama-3.1-8B-Instruct").tool_format
COMMAND_R = template("CohereForAI-c4ai-command-r7b-12-2024-tool_use").tool_format
MISTRAL = template("Mistral-Small-3.2-24B-Instruct-2506").tool_format
KIMI = template("Kimi-K2-Instruct").tool_format
FORMATS = formats()
THINK = ReasoningMarkers("<think>", "</think>")
TOOLS = frozenset({"add", "python"})
ADD = ("add", {"a": 1, "b": "}]"})
ARGUMENTS = json.dumps(ADD[1])


def read(text, size=None, **reading):
    """The answer, read in pieces of `size` characters."""
    reader, deltas = OutputParser(ParserConfig(**reading)), []
    size = size or max(len(text), 1)
    for start in range(0, len(text), size):
        deltas += reader.push(text[start : start + size])
    return AssistantMessage.of([*deltas, *reader.finish()])


def calls(message):
    return [(call.name, json.loads(call.arguments)) for call in message.calls]


CALL = f'{{"name": "add", "arguments": {ARGUMENTS}}}'
OF_LLAMA = f'{{"name": "add", "parameters": {ARGUMENTS}}}'
ACTION = f'{{"tool_call_id": "0", "tool_name": "add", "parameters": {ARGUMENTS}}}'
SECTION = f"<|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{ARGUMENTS}<|tool_call_end|>"
CALLS = {  # other ways of writing them than the grammar has; see also the corpus
    "hermes": (HERMES, f"<tool_call>\n{CALL}\n</tool_call>"),
    "arguments first": (HERMES, f'<tool_call>{{"arguments": {ARGUMENTS}, "name": "add"}}</tool_call>'),
    "arguments as text": (HERMES, f"<tool_call>{CALL.replace(ARGUMENTS, json.dumps(ARGUMENTS))}</tool_call>"),
    "llama": (LLAMA, OF_LLAMA),
    "llama, with a type": (LLAMA, f' {{"type": "function", "function": {OF_LLAMA}}}'),
    "llama, marked": (LLAMA, f"<|python_tag|>{OF_LLAMA}"),
    "llama, a program": (LLAMA, '<|python_tag|>add.call(a=1, b="}]")'),
    "command-r": (COMMAND_R, f"<|START_ACTION|>[{ACTION}]<|END_ACTION|>"),
    "kimi": (KIMI, f"<|tool_calls_section_begin|>{SECTION}<|tool_calls_section_end|>"),
}


@pytest.mark.parametrize("size", [1, 3, None])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_parsed_however_the_format_lets_it_be_written(name, size):
    own, text = CALLS[name]
    message = read(text, size, tool_format=own, tools=TOOLS)
    assert (calls(message), message.content) == ([ADD], "")


@pytest.mark.parametrize("size", [1, None])
@pytest.mark.parametrize("own", FORMATS.values(), ids=FORMATS.keys())
def test_calls_in_the_form_of_the_grammar_are_parsed(own, size):
    message = read(own.write([ADD, ADD]), size, tool_format=own, tools=TOOLS)
    assert calls(message) == [ADD, ADD]


@pytest.mark.parametrize(
    ("members", "arguments"),
    [(', "arguments": {\n"a": "x\ty\n"}', {"a": "x\ty\n"}), ("", {})],
    ids=["control characters are escaped", "none are an empty object"],
)
def test_arguments_are_json(members, arguments):
    text = f'<tool_call>{{"name": "add"{members}}}</tool_call>'
    assert calls(read(text, tool_format=HERMES)) == [("add", arguments)]


def test_calls_have_ids_of_their_own():
    message = read("\n".join([CALLS["hermes"][1]] * 3), tool_format=HERMES)
    assert len({call.id for call in message.calls}) == 3


def test_a_call_whose_id_was_used_before_gets_another():
    written = MISTRAL.write([ADD, ADD])
    first, second = read(written, tool_format=MISTRAL, tools=TOOLS, used_ids=frozenset({"0"})).calls
    assert len({"0", first.id, second.id}) == 3


def test_only_the_first_call_counts_if_the_client_wants_one():
    message = read("\n".join([CALLS["hermes"][1]] * 2), tool_format=HERMES, one_call=True)
    assert calls(message) == [ADD]


def test_a_call_is_emitted_when_it_is_whole():
    reader = OutputParser(ParserConfig(tool_format=HERMES))
    pieces = [reader.push(text) for text in ('<tool_call>{"name": "add", "argu', 'ments": {"a": 1}', "}")]
    assert pieces[:2] == [[], []]
    assert [type(delta) for delta in pieces[2]] == [ToolCallStart, ToolCallArguments]


@pytest.mark.parametrize("size", [1, None])
@pytest.mark.parametrize(
    ("own", "text"),
    [
        *((HERMES, text) for text in ("<tool_call> is how it is written", "<tool_call>[1, 2]</tool_call>")),
        *((HERMES, text) for text in ('<tool_call>{"nom": "add"}</tool_call>', "a < b and <tool")),
        *((HERMES, text) for text in ("<tool_call>", "  spaced out  ")),
        *((LLAMA, text) for text in ('{"name": "fox", "parameters": {}}', '{"a": 1}', '{"a": [1, 2')),
        *((LLAMA, text) for text in ("{", "x {}")),
    ],
)
def test_text_that_only_began_like_a_call_is_content(own, text, size):
    message = read(text, size, tool_format=own, tools=TOOLS)
    assert (message.content, message.calls) == (text, [])


@pytest.mark.parametrize("own", FORMATS.values(), ids=FORMATS.keys())
def test_an_answer_that_is_cut_off_inside_a_call_has_neither_the_call_nor_its_marks(own):
    before = "Hm. " if own.starts else ""
    text, n_head = own.write([ADD]), len(own.before) + len(own.frame("add")[0])
    for n in range(n_head, text.index(ARGUMENTS[-4:-2]) if ARGUMENTS in text else n_head + 5):
        reader = OutputParser(ParserConfig(tool_format=own, tools=TOOLS))
        message = AssistantMessage.of([*reader.push(before + text[:n]), *reader.finish(is_cut=True)])
        assert (message.content, message.calls) == (before.strip(), []), text[:n]


@pytest.mark.parametrize("size", [1, None])
@pytest.mark.parametrize("family", ["hermes", "kimi", "command-r"])
def test_an_end_marker_that_is_cut_off_is_not_content(family, size):
    tool_format, text = CALLS[family]
    message = read(text[:-3], size, tool_format=tool_format)
    assert (message.content, calls(message)) == ("", [ADD])


def test_an_object_that_begins_like_no_call_is_content_at_once():
    reader = OutputParser(ParserConfig(tool_format=LLAMA, tools=TOOLS))
    assert reader.push('{"recipe": "Cook') == [Content('{"recipe": "Cook')]
    assert reader.finish(is_cut=True) == []


def test_a_generic_response_may_be_json():
    assert read('{"response": {"a": [1]}}', 1, tool_format=GENERIC).content == '{"a": [1]}'


def test_a_generic_call_may_follow_reasoning_that_the_model_began():
    text = '<think>Hm</think>\n{"tool_calls": [{"name": "add", "arguments": {"a": 1}}]}'
    assert calls(read(text, reasoning=THINK, tool_format=GENERIC)) == [("add", {"a": 1})]


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [("<think>Hm. </thi", "Hm. </thi", ""), ("Yes <think> is a word", "", "Yes <think> is a word")],
    ids=["it never ends", "a marker after content"],
)
def test_reasoning_is_what_follows_a_marker_at_the_beginning(text, reasoning, content):
    message = read(text, 1, reasoning=THINK)
    assert (message.reasoning, message.content) == (reasoning, content)


def test_text_that_is_certain_is_not_held_back():
    reader = OutputParser(ParserConfig(reasoning=THINK, tool_format=HERMES))
    assert reader.push("<think>Hm") == [Reasoning("Hm")]
    assert reader.push("</think>Yes <") == [Content("Yes")]
    assert reader.push("b") == [Content(" <b")]


def test_content_that_the_prompt_contains_comes_first():
    assert read("Hm</think>", prefix="<think>\n").content == "<think>\nHm</think>"


FRAGMENTS = [*'{}[],; \n<"\\', "add", "words ", '{"name": "add"', '{"b": 1}']


@pytest.mark.parametrize("own", FORMATS.values(), ids=FORMATS.keys())
@given(data=st.data())
def test_any_text_is_parsed_the_same_in_pieces_and_whole(own, data):
    calls_ = [own.write([ADD]), own.write([ADD]).removeprefix(own.before)]
    fragments = [*FRAGMENTS, *own.markers(), *calls_, THINK.start, THINK.end, "<response>"]
    text = "".join(data.draw(st.lists(st.sampled_from(fragments), max_size=8)))
    config = {
        "tool_format": own,
        "tools": TOOLS,
        "reasoning": data.draw(st.sampled_from([None, THINK])),
        "in_reasoning": data.draw(st.booleans()),
        "ignored_markers": ("<response>",),
    }
    whole, pieces = read(text, **config), read(text, data.draw(st.integers(1, 5)), **config)
    assert (whole.content, whole.reasoning) == (pieces.content, pieces.reasoning)
    assert [(c.name, c.arguments) for c in whole.calls] == [(c.name, c.arguments) for c in pieces.calls]


UNITS = (*' a{}["\\,', "a.", "{}", '{"name":', '{"arguments":"', '["', "a=", '"a":1,')


def scanned(monkeypatch, own, text, size):
    """The number of characters in which markers and members are looked for while `text` is read."""
    n = 0

    def counting(function):
        def counted(*given, **options):
            nonlocal n
            n += len(next(each for each in given if isinstance(each, str)))
            return function(*given, **options)

        return counted

    with monkeypatch.context() as patch:
        patch.setattr(markers, "split_at_marker", counting(markers.split_at_marker))
        patch.setattr(ValueScanner, "push", counting(ValueScanner.push))
        patch.setattr(OutputParser, "_content", counting(OutputParser._content))
        read(text, size, tool_format=own, tools=TOOLS, reasoning=THINK)
    return n


@pytest.mark.parametrize("own", FORMATS.values(), ids=FORMATS.keys())
def test_the_work_is_linear_in_the_text_whatever_it_is(monkeypatch, own):
    starts = ["", *own.starts[:1], *([own.code_tag] if own.code_tag else [])]
    units = {*UNITS, *own.markers()} - {""}
    for start in starts:
        for unit in units | {start + unit for unit in UNITS[:8]}:
            text = start + unit * (3000 // len(unit))
            n = scanned(monkeypatch, own, text, 7 if len(unit) % 2 else None)
            assert n <= 100 * len(text), (start, unit)  # reading again at each marker: at least 200


@pytest.mark.parametrize("size", [1, 3, None])
@pytest.mark.parametrize(
    ("written", "content"),
    [
        (r"a\xb", r"a\xb"),
        (r"\ud83d\ude00", "\U0001f600"),
        (r"\ud83dx", "\ufffdx"),
        (r"\ud83d\u0041", "\ufffdA"),
        (r"\u12", ""),
    ],
)
def test_an_answer_is_well_formed_text_whatever_its_escapes(size, written, content):
    text = '{"response": "' + written
    assert read(text, size, tool_format=GENERIC, tools=TOOLS).content == content


def test_white_space_before_a_call_is_dropped_only_as_far_as_it_could_wait():
    message = read("x" + " " * 1000 + CALLS["hermes"][1], 7, tool_format=CALLS["hermes"][0], tools=TOOLS)
    assert message.content == "x" + " " * (1000 - 256)
    assert len(message.calls) == 1


def test_only_so_many_objects_that_are_no_calls_are_read_again():
    own, call = CALLS["hermes"]
    nested = '<tool_call>{"arguments": "' * 100
    assert read(nested + call, tool_format=own, tools=TOOLS).content.startswith(nested)
