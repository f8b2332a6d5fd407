# ruff: noqa: RUF001 - DeepSeek writes its marks with full-width bars
"""How models write that they call tools: families of chat templates, told apart by marks in their text."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

_NAME = r"(?P<name>[\w.:-]+?)"


@dataclass(frozen=True, slots=True)
class Family:
    """The marks of a family.

    opens: after one of them there are calls. closes: what may stand between and behind calls, and means
    nothing. drops: what means nothing wherever it stands. head: of calls whose name stands before the
    arguments, all up to the brace. bare: an answer that is a JSON object is a call. script: calls may be a
    program (`<|python_tag|>`). several: thoughts and words may take turns.
    before, call, between, after: how to write calls with %(name)s and %(arguments)s, for a grammar; `call` is
    what stands before and behind the arguments.
    """

    name: str
    opens: tuple[str, ...]
    call: tuple[str, str]
    closes: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()
    head: re.Pattern[str] | None = None
    bare: bool = False
    script: str | None = None
    several: bool = False
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
        script = (self.script,) if self.script else ()
        return (
            *self.opens,
            *self.closes,
            *self.drops,
            *script,
            self.before,
            self.between,
            *self.call,
            self.after,
        )


_COHERE_DROPS = ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>")

GPT_OSS = Family(
    "gpt-oss",
    opens=("<|channel|>commentary to=functions.", " to=functions.", "to=functions."),
    head=re.compile(_NAME + r"(?:<\|channel\|>\w+)?\s*(?:<\|constrain\|>)?(?:json)?\s*<\|message\|>\s*"),
    closes=("<|call|>",),
    drops=(
        "<|start|>assistant",
        "<|channel|>final<|message|>",
        "<|channel|>commentary<|message|>",
        "<|end|>",
    ),
    several=True,
    call=("<|channel|>commentary to=functions.%(name)s <|constrain|>json<|message|>", ""),
)
MISTRAL_NAMED = Family(
    "mistral",
    opens=("[TOOL_CALLS]",),
    head=re.compile(r"\s*" + _NAME + r"(?:\[CALL_ID\](?P<id>\w+))?\[ARGS\]\s*"),
    closes=(",",),
    call=("[TOOL_CALLS]%(name)s[ARGS]", ""),
    id_characters=9,
)
MISTRAL = Family(
    "mistral-list",
    opens=("[TOOL_CALLS]",),
    closes=("[", ",", "]"),
    before="[TOOL_CALLS][",
    call=('{"name": %(json)s, "arguments": ', "}"),
    between=", ",
    after="]",
    id_characters=9,
)
DEEPSEEK = Family(
    "deepseek",
    opens=("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),
    head=re.compile(
        r"\s*(?:<｜tool▁call▁begin｜>)?(?:function<｜tool▁sep｜>)?"
        + _NAME
        + r"(?:<｜tool▁sep｜>)?\s*(?:```json)?\s*"
    ),
    closes=("```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"),
    before="<｜tool▁calls▁begin｜>",
    call=("<｜tool▁call▁begin｜>%(name)s<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    after="<｜tool▁calls▁end｜>",
)
DEEPSEEK_FENCED = Family(
    "deepseek-fenced",
    opens=DEEPSEEK.opens,
    head=DEEPSEEK.head,
    closes=DEEPSEEK.closes,
    before="<｜tool▁calls▁begin｜>",
    call=(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>%(name)s\n```json\n",
        "\n```<｜tool▁call▁end｜>",
    ),
    between="\n",
    after="<｜tool▁calls▁end｜>",
)
KIMI = Family(
    "kimi",
    opens=("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
    head=re.compile(
        r"\s*(?:<\|tool_call_begin\|>)?\s*(?P<id>(?:functions\.)?(?P<name>[\w.-]+?)(?::\d+)?)"
        r"\s*<\|tool_call_argument_begin\|>\s*"
    ),
    closes=("<|tool_call_end|>", "<|tool_calls_section_end|>"),
    before="<|tool_calls_section_begin|>",
    call=("<|tool_call_begin|>functions.%(name)s:0<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    after="<|tool_calls_section_end|>",
)
COMMAND_R = Family(
    "command-r",
    opens=("<|START_ACTION|>",),
    closes=("[", ",", "]", "<|END_ACTION|>"),
    drops=_COHERE_DROPS,
    before="<|START_ACTION|>[",
    call=('{"tool_call_id": "0", "tool_name": %(json)s, "parameters": ', "}"),
    between=", ",
    after="]<|END_ACTION|>",
)
COMMAND_R_PLUS = Family(
    "command-r-plus",
    opens=("Action: ```json", "Action:```json"),
    closes=("[", ",", "]", "```"),
    before="Action: ```json\n[",
    call=('{"tool_name": %(json)s, "parameters": ', "}"),
    between=", ",
    after="]```",
)
FUNCTION_TAG = Family(
    "function-tag",
    opens=("<function=",),
    head=re.compile(_NAME + r">\s*"),
    closes=("</function>",),
    script="<|python_tag|>",
    call=("<function=%(name)s>", "</function>"),
    between="\n",
)
HERMES = Family(
    "hermes",
    opens=("<tool_call>", "<tool_calls>"),
    closes=("</tool_call>", "</tool_calls>", "[", ",", "]"),
    call=('<tool_call>\n{"name": %(json)s, "arguments": ', "}\n</tool_call>"),
    between="\n",
)
FIREFUNCTION = Family(
    "firefunction",
    opens=("functools",),
    closes=("[", ",", "]"),
    before=" functools[",
    call=('{"name": %(json)s, "arguments": ', "}"),
    between=", ",
    after="]",
)
TOOLCALL = Family(
    "toolcall",
    opens=("<TOOLCALL>",),
    closes=("[", ",", "]", "</TOOLCALL>"),
    before="<TOOLCALL>[",
    call=('{"name": %(json)s, "arguments": ', "}"),
    between=", ",
    after="]</TOOLCALL>",
)
PHI = Family(
    "phi",
    opens=("<|tool_call|>",),
    closes=("[", ",", "]", "<|/tool_call|>"),
    before="<|tool_call|>[",
    call=('{"name": %(json)s, "arguments": ', "}"),
    between=", ",
    after="]",
)
LLAMA = Family(
    "llama",
    opens=(),
    closes=(";",),
    bare=True,
    script="<|python_tag|>",
    call=('{"name": %(json)s, "parameters": ', "}"),
    between="; ",
)
GENERIC = Family(
    "generic",
    opens=(),
    closes=(",", "]", "}"),
    before='{"tool_calls": [',
    call=('{"name": %(json)s, "arguments": ', "}"),
    between=", ",
    after="]}",
)
"""For templates that know nothing of tools: these are described in words, and the answer is made JSON."""

_XML_TAGS = ("<parameter=", "<arg_key>", "<invoke", "<parameter ")
"""Of templates whose models write arguments as XML: those are GENERIC here."""

_KNOWN: tuple[tuple[Callable[[str], bool], Family], ...] = (
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


def find_family(template: str, *, takes_tools: bool) -> Family:
    """The family of a chat template; GENERIC for one that does not tell of tools in a way known here."""
    if not takes_tools:
        return GENERIC
    return next((family for is_one, family in _KNOWN if is_one(template)), GENERIC)


def find_drops(template: str) -> tuple[str, ...]:
    """Marks of a template that mean nothing to a reader of the answer, with tools or without."""
    if "<|channel|>" in template:
        return GPT_OSS.drops
    return COMMAND_R.drops if COMMAND_R.drops[0] in template else ()
