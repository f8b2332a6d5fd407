# ruff: noqa: RUF001 - DeepSeek writes its marks with full-width bars
import json

import pytest

from lead.chat import family
from lead.chat.deltas import CallArguments, CallBegun, Content, Reasoning, Said
from lead.chat.output import OutputReader, Reading
from lead.chat.reasoning import Thinking

THINK = Thinking("<think>", "</think>")
TOOLS = frozenset({"add", "python"})
ADD = ("add", {"a": 1, "b": "}]"})
ARGUMENTS = json.dumps(ADD[1])


def read(text, size=None, **reading):
    """The answer, read in pieces of `size` characters."""
    reader, said = OutputReader(Reading(**reading)), Said()
    size = size or max(len(text), 1)
    for start in range(0, len(text), size):
        said.add(reader.push(text[start : start + size]))
    said.add(reader.finish())
    return said


def calls(said):
    return [(call.name, json.loads(call.arguments)) for call in said.calls]


CALLS = {
    "hermes": (family.HERMES, f'<tool_call>\n{{"name": "add", "arguments": {ARGUMENTS}}}\n</tool_call>'),
    "hermes, arguments first": (
        family.HERMES,
        f'<tool_call>{{"arguments": {ARGUMENTS}, "name": "add"}}</tool_call>',
    ),
    "hermes, arguments as text": (
        family.HERMES,
        f'<tool_call>{{"name": "add", "arguments": {json.dumps(ARGUMENTS)}}}</tool_call>',
    ),
    "llama": (family.LLAMA, f'{{"name": "add", "parameters": {ARGUMENTS}}}'),
    "llama, with a type": (
        family.LLAMA,
        f' {{"type": "function", "function": {{"name": "add", "parameters": {ARGUMENTS}}}}}',
    ),
    "llama, marked": (family.LLAMA, f'<|python_tag|>{{"name": "add", "parameters": {ARGUMENTS}}}'),
    "llama, a program": (family.LLAMA, '<|python_tag|>add.call(a=1, b="}]")'),
    "mistral": (family.MISTRAL, f'[TOOL_CALLS][{{"name": "add", "arguments": {ARGUMENTS}}}]'),
    "mistral, named": (family.MISTRAL_NAMED, f"[TOOL_CALLS]add[ARGS]{ARGUMENTS}"),
    "deepseek r1": (
        family.DEEPSEEK_FENCED,
        (
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n"
            f"{ARGUMENTS}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
    ),
    "deepseek 3.1": (
        family.DEEPSEEK,
        (
            f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{ARGUMENTS}<｜tool▁call▁end｜>"
            "<｜tool▁calls▁end｜>"
        ),
    ),
    "command-r": (
        family.COMMAND_R,
        (
            f'<|START_ACTION|>[{{"tool_call_id": "0", "tool_name": "add", "parameters": {ARGUMENTS}}}]'
            "<|END_ACTION|>"
        ),
    ),
    "command-r-plus": (
        family.COMMAND_R_PLUS,
        f'Action: ```json\n[{{"tool_name": "add", "parameters": {ARGUMENTS}}}]```',
    ),
    "function tag": (family.FUNCTION_TAG, f"<function=add>{ARGUMENTS}</function>"),
    "kimi": (
        family.KIMI,
        (
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>"
            f"{ARGUMENTS}<|tool_call_end|><|tool_calls_section_end|>"
        ),
    ),
    "gpt-oss": (
        family.GPT_OSS,
        f"<|channel|>commentary to=functions.add <|constrain|>json<|message|>{ARGUMENTS}<|call|>",
    ),
    "phi": (family.PHI, f'<|tool_call|>[{{"name": "add", "arguments": {ARGUMENTS}}}]<|/tool_call|>'),
    "toolcall": (family.TOOLCALL, f'<TOOLCALL>[{{"name": "add", "arguments": {ARGUMENTS}}}]</TOOLCALL>'),
    "generic": (family.GENERIC, f'{{"tool_calls": [{{"name": "add", "arguments": {ARGUMENTS}}}]}}'),
}


@pytest.mark.parametrize("size", [1, 3, None])
@pytest.mark.parametrize("name", CALLS)
def test_every_familys_call_is_found(name, size):
    own, text = CALLS[name]
    said = read(text, size, family=own, tools=TOOLS)
    assert (calls(said), said.content) == ([ADD], "")


@pytest.mark.parametrize("size", [1, None])
@pytest.mark.parametrize(
    "own",
    [value for value in vars(family).values() if isinstance(value, family.Family)],
    ids=lambda f: f.name,
)
def test_calls_written_as_the_grammar_wants_are_found(own, size):
    start, end = own.frame("add")
    call = f"{start}{ARGUMENTS}{end}"
    said = read(f"{own.before}{call}{own.between}{call}{own.after}", size, family=own, tools=TOOLS)
    assert calls(said) == [ADD, ADD]


@pytest.mark.parametrize("size", [1, None])
def test_words_before_a_call_are_content_without_the_space_between(size):
    said = read(f"Let me see.\n\n{CALLS['hermes'][1]}", size, family=family.HERMES)
    assert (said.content, calls(said)) == ("Let me see.", [ADD])


@pytest.mark.parametrize("size", [1, None])
def test_calls_may_follow_each_other(size):
    said = read("\n".join([CALLS["hermes"][1]] * 3), size, family=family.HERMES)
    assert calls(said) == [ADD] * 3
    assert len({call.id for call in said.calls}) == 3


def test_only_the_first_call_counts_where_one_was_asked_for():
    said = read("\n".join([CALLS["hermes"][1]] * 2), family=family.HERMES, single=True)
    assert calls(said) == [ADD]


def test_a_calls_name_comes_before_its_arguments_which_come_in_pieces():
    reader = OutputReader(Reading(family=family.HERMES))
    pieces = [reader.push(text) for text in ('<tool_call>{"name": "add", "argu', 'ments": {"a"', ": 1}", "}")]
    assert [type(delta) for delta in pieces[0]] == [CallBegun]
    assert pieces[1:] == [[CallArguments(0, '{"a"')], [CallArguments(0, ": 1}")], []]


@pytest.mark.parametrize("size", [1, None])
@pytest.mark.parametrize(
    "text",
    [
        "<tool_call> is how it is written",
        "<tool_call>[1, 2]</tool_call>",
        '<tool_call>{"nom": "add"}</tool_call>',
        "a < b and <tool",
        "<tool_call>",
        "  spaced out  ",
    ],
)
def test_what_only_looked_like_a_call_is_content(text, size):
    said = read(text, size, family=family.HERMES)
    assert (said.content, said.calls) == (text, [])


@pytest.mark.parametrize("size", [1, None])
@pytest.mark.parametrize(
    "text", ['{"name": "fox", "parameters": {}}', '{"a": 1}', '{"a": [1, 2', "{", "x {}"]
)
def test_json_that_calls_no_tool_is_content(text, size):
    said = read(text, size, family=family.LLAMA, tools=TOOLS)
    assert (said.content, said.calls) == (text, [])


def test_a_call_that_was_cut_off_stays_a_call():
    said = read('<tool_call>{"name": "add", "arguments": {"a": 1', family=family.HERMES)
    assert [(call.name, call.arguments) for call in said.calls] == [("add", '{"a": 1')]


def test_a_call_without_arguments_has_none_of_them():
    assert calls(read('<tool_call>{"name": "add"}</tool_call>', family=family.HERMES)) == [("add", {})]


def test_code_is_a_call_of_the_interpreter():
    said = read("<|python_tag|>print(1)", family=family.LLAMA, tools=TOOLS)
    assert calls(said) == [("python", {"code": "print(1)"})]


@pytest.mark.parametrize("size", [1, None])
def test_a_generic_answer_is_its_text(size):
    said = read('{"response": "a \\"b\\" \\ud83d\\udc4b\\n"}', size, family=family.GENERIC)
    assert said.content == 'a "b" 👋\n'


def test_a_generic_answer_may_be_json():
    assert read('{"response": {"a": [1]}}', 1, family=family.GENERIC).content == '{"a": [1]}'


@pytest.mark.parametrize("size", [1, None])
@pytest.mark.parametrize(
    ("text", "opened"), [("<think>\nHm.\n</think>\n\nYes.", False), ("\nHm.\n</think>\n\nYes.", True)]
)
def test_reasoning_is_told_apart(text, opened, size):
    said = read(text, size, thinking=THINK, opened=opened)
    assert (said.reasoning, said.content) == ("Hm.", "Yes.")


def test_reasoning_that_never_ends_is_reasoning():
    said = read("<think>Hm. </thi", 1, thinking=THINK)
    assert (said.reasoning, said.content) == ("Hm. </thi", "")


def test_an_answer_without_reasoning_has_none():
    said = read("Yes <think> is a word", 1, thinking=THINK)
    assert (said.reasoning, said.content) == ("", "Yes <think> is a word")


@pytest.mark.parametrize("size", [1, None])
def test_a_call_may_follow_reasoning(size):
    said = read(f"<think>Hm.</think>\n{CALLS['hermes'][1]}", size, thinking=THINK, family=family.HERMES)
    assert (said.reasoning, said.content, calls(said)) == ("Hm.", "", [ADD])


@pytest.mark.parametrize("size", [1, None])
def test_channels_are_reasoning_and_content(size):
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes."
    said = read(
        text, size, thinking=Thinking("<|channel|>analysis<|message|>", "<|end|>"), drops=family.GPT_OSS.drops
    )
    assert (said.reasoning, said.content) == ("Hm.", "Yes.")


def test_certain_text_is_not_held_back():
    reader = OutputReader(Reading(thinking=THINK, family=family.HERMES))
    assert reader.push("<think>Hm") == [Reasoning("Hm")]
    assert reader.push("</think>Yes <") == [Content("Yes")]
    assert reader.push("b") == [Content(" <b")]


def test_what_the_prompt_holds_of_the_answer_is_told_first():
    assert read("Hm</think>", lead_in="<think>\n").content == "<think>\nHm</think>"
