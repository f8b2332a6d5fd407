# ruff: noqa: RUF001 - DeepSeek writes its marks with full-width bars
"""How models write that they call tools: families of chat templates, told apart by marks in their text."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

_NAME = r"(?P<name>[\w.:-]+?)"


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How the models of one family write tool calls.

    call_starts: markers that begin calls.
    separators: text without meaning between and after calls.
    ignored_markers: text without meaning anywhere in the answer.
    call_header: matches all before the arguments, if the name is not a member of a JSON object.
    json_only: an answer that is a JSON object is a call.
    python_tag: marker of a call that may be written as code, or None.
    interleaved: reasoning and content may alternate.
    before, call, between, after: the text around all calls, around the arguments of each, between two, in
    a grammar; %(name)s and %(json)s stand for the tool's name, plain and as JSON.
    """

    name: str
    call_starts: tuple[str, ...]
    call: tuple[str, str]
    separators: tuple[str, ...] = ()
    ignored_markers: tuple[str, ...] = ()
    call_header: re.Pattern[str] | None = None
    json_only: bool = False
    python_tag: str | None = None
    interleaved: bool = False
    before: str = ""
    between: str = ""
    after: str = ""
    id_characters: int = 0

    def frame(self, name: str) -> tuple[str, str]:
        """What stands before and behind the arguments of a call of the tool `name`."""
        start, end = self.call
        return start.replace("%(json)s", json.dumps(name, ensure_ascii=False)).replace("%(name)s", name), end

    def marks(self) -> tuple[str, ...]:
        """All marks: tokens that are otherwise not shown."""
        python_tag = (self.python_tag,) if self.python_tag else ()
        return (
            *self.call_starts,
            *self.separators,
            *self.ignored_markers,
            *python_tag,
            self.before,
            self.between,
            *self.call,
            self.after,
        )


_COHERE_DROPS = ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>")

GPT_OSS = ToolFormat(
    "gpt-oss",
    call_starts=("<|channel|>commentary to=functions.", " to=functions.", "to=functions."),
    call_header=re.compile(
        _NAME + r"(?:<\|channel\|>\w+)?\s*(?:<\|constrain\|>)?(?:json)?\s*<\|message\|>\s*"
    ),
    separators=("<|call|>",),
    ignored_markers=(
        "<|start|>assistant",
        "<|channel|>final<|message|>",
        "<|channel|>commentary<|message|>",
        "<|end|>",
    ),
    interleaved=True,
    call=("<|channel|>commentary to=functions.%(name)s <|constrain|>json<|message|>", ""),
)
MISTRAL_NAMED = ToolFormat(
    "mistral",
    call_starts=("[TOOL_CALLS]",),
    call_header=re.compile(r"\s*" + _NAME + r"(?:\[CALL_ID\](?P<id>\w+))?\[ARGS\]\s*"),
    separators=(",",),
    call=("[TOOL_CALLS]%(name)s[ARGS]", ""),
    id_characters=9,
)
MISTRAL = ToolFormat(
    "mistral-list",
    call_starts=("[TOOL_CALLS]",),
    separators=("[", ",", "]"),
    before="[TOOL_CALLS][",
    call=('{"name": %(json)s, "arguments": ', "}"),
    between=", ",
    after="]",
    id_characters=9,
)
DEEPSEEK = ToolFormat(
    "deepseek",
    call_starts=("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),
    call_header=re.compile(
        r"\s*(?:<｜tool▁call▁begin｜>)?(?:function<｜tool▁sep｜>)?"
        + _NAME
        + r"(?:<｜tool▁sep｜>)?\s*(?:```json)?\s*"
    ),
    separators=("```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"),
    before="<｜tool▁calls▁begin｜>",
    call=("<｜tool▁call▁begin｜>%(name)s<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    after="<｜tool▁calls▁end｜>",
)
DEEPSEEK_FENCED = ToolFormat(
    "deepseek-fenced",
    call_starts=DEEPSEEK.call_starts,
    call_header=DEEPSEEK.call_header,
    separators=DEEPSEEK.separators,
    before="<｜tool▁calls▁begin｜>",
    call=(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>%(name)s\n```json\n",
        "\n```<｜tool▁call▁end｜>",
    ),
    between="\n",
    after="<｜tool▁calls▁end｜>",
)
KIMI = ToolFormat(
    "kimi",
    call_starts=("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
    call_header=re.compile(
        r"\s*(?:<\|tool_call_begin\|>)?\s*(?P<id>(?:functions\.)?(?P<name>[\w.-]+?)(?::\d+)?)"
        r"\s*<\|tool_call_argument_begin\|>\s*"
    ),
    separators=("<|tool_call_end|>", "<|tool_calls_section_end|>"),
    before="<|tool_calls_section_begin|>",
    call=("<|tool_call_begin|>functions.%(name)s:0<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    after="<|tool_calls_section_end|>",
)
COMMAND_R = ToolFormat(
    "command-r",
    call_starts=("<|START_ACTION|>",),
    separators=("[", ",", "]", "<|END_ACTION|>"),
    ignored_markers=_COHERE_DROPS,
    before="<|START_ACTION|>[",
    call=('{"tool_call_id": "0", "tool_name": %(json)s, "parameters": ', "}"),
    between=", ",
    after="]<|END_ACTION|>",
)
COMMAND_R_PLUS = ToolFormat(
    "command-r-plus",
    call_starts=("Action: ```json", "Action:```json"),
    separators=("[", ",", "]", "```"),
    before="Action: ```json\n[",
    call=('{"tool_name": %(json)s, "parameters": ', "}"),
    between=", ",
    after="]```",
)
FUNCTION_TAG = ToolFormat(
    "function-tag",
    call_starts=("<function=",),
    call_header=re.compile(_NAME + r">\s*"),
    separators=("</function>",),
    python_tag="<|python_tag|>",
    call=("<function=%(name)s>", "</function>"),
    between="\n",
)
HERMES = ToolFormat(
    "hermes",
    call_starts=("<tool_call>", "<tool_calls>"),
    separators=("</tool_call>", "</tool_calls>", "[", ",", "]"),
    call=('<tool_call>\n{"name": %(json)s, "arguments": ', "}\n</tool_call>"),
    between="\n",
)
FIREFUNCTION = ToolFormat(
    "firefunction",
    call_starts=("functools",),
    separators=("[", ",", "]"),
    before=" functools[",
    call=('{"name": %(json)s, "arguments": ', "}"),
    between=", ",
    after="]",
)
TOOLCALL = ToolFormat(
    "toolcall",
    call_starts=("<TOOLCALL>",),
    separators=("[", ",", "]", "</TOOLCALL>"),
    before="<TOOLCALL>[",
    call=('{"name": %(json)s, "arguments": ', "}"),
    between=", ",
    after="]</TOOLCALL>",
)
PHI = ToolFormat(
    "phi",
    call_starts=("<|tool_call|>",),
    separators=("[", ",", "]", "<|/tool_call|>"),
    before="<|tool_call|>[",
    call=('{"name": %(json)s, "arguments": ', "}"),
    between=", ",
    after="]",
)
LLAMA = ToolFormat(
    "llama",
    call_starts=(),
    separators=(";",),
    json_only=True,
    python_tag="<|python_tag|>",
    call=('{"name": %(json)s, "parameters": ', "}"),
    between="; ",
)
GENERIC = ToolFormat(
    "generic",
    call_starts=(),
    separators=(",", "]", "}"),
    before='{"tool_calls": [',
    call=('{"name": %(json)s, "arguments": ', "}"),
    between=", ",
    after="]}",
)
"""For templates that know nothing of tools: these are described in words, and the answer is made JSON."""

_XML_TAGS = ("<parameter=", "<arg_key>", "<invoke", "<parameter ")
"""Of templates whose models write arguments as XML: those are GENERIC here."""

_KNOWN: tuple[tuple[Callable[[str], bool], ToolFormat], ...] = (
    (lambda source: "<|channel|>" in source, GPT_OSS),
    (lambda source: "[TOOL_CALLS]" in source and "[ARGS]" in source, MISTRAL_NAMED),
    (lambda source: "[TOOL_CALLS]" in source, MISTRAL),
    (lambda source: "<｜tool▁call" in source and "```json" in source, DEEPSEEK_FENCED),
    (lambda source: "<｜tool▁call" in source, DEEPSEEK),
    (lambda source: "<|tool_call_argument_begin|>" in source, KIMI),
    (lambda source: "<|START_ACTION|>" in source, COMMAND_R),
    (lambda source: "Action:" in source and "tool_name" in source, COMMAND_R_PLUS),
    (lambda source: "<function=" in source and "<parameter=" not in source, FUNCTION_TAG),
    (lambda source: "<TOOLCALL>" in source, TOOLCALL),
    (lambda source: "<|tool_call|>" in source, PHI),
    (lambda source: " functools" in source, FIREFUNCTION),
    (lambda source: "<tool_call>" in source and not any(tag in source for tag in _XML_TAGS), HERMES),
    (lambda source: "<|start_header_id|>" in source and "ipython" in source, LLAMA),
)


def detect_tool_format(template: str, *, takes_tools: bool) -> ToolFormat:
    """The family of a chat template; GENERIC for one that does not tell of tools in a way known here."""
    if not takes_tools:
        return GENERIC
    return next((family for is_one, family in _KNOWN if is_one(template)), GENERIC)


def detect_ignored_markers(template: str) -> tuple[str, ...]:
    """Marks of a template that mean nothing to a reader of the answer, with tools or without."""
    if "<|channel|>" in template:
        return GPT_OSS.ignored_markers
    return COMMAND_R.ignored_markers if COMMAND_R.ignored_markers[0] in template else ()
