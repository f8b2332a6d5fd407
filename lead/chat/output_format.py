# ruff: noqa: RUF001 - DeepSeek's markers contain full-width bars
"""How models write reasoning and tool calls: formats, recognised by texts in the chat template."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

_NAME = r"(?P<name>[\w.:-]+?)"
_LIST = ("[", ",", "]")
_JSON_CALL = ('{"name": %(json)s, "arguments": ', "}")


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """The format of one family of models.

    signs: texts that a chat template of this format contains; without: texts that it does not contain.
    call_starts: markers that begin calls.
    separators: text without meaning between and after calls.
    call_header: matches all before the arguments, if the name is not a member of a JSON object.
    json_only: an answer that is a JSON object is a call.
    python_tag: marker of a call that may be written as code, or None.
    ends_reasoning: a call may begin inside reasoning, which it ends.
    special_tokens: further control tokens of the format.
    before, call, between, after: the text around all calls, around the arguments of each, between two, in
    a grammar; %(name)s and %(json)s stand for the tool's name, plain and as JSON.
    id_characters: the length of call ids, if the template requires one.
    """

    name: str
    call: tuple[str, str]
    signs: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    call_starts: tuple[str, ...] = ()
    separators: tuple[str, ...] = ()
    call_header: re.Pattern[str] | None = None
    json_only: bool = False
    python_tag: str | None = None
    ends_reasoning: bool = False
    special_tokens: tuple[str, ...] = ()
    before: str = ""
    between: str = ""
    after: str = ""
    id_characters: int = 0

    def __reduce__(self) -> tuple[Callable[[str], "ToolFormat"], tuple[str]]:
        """Pickled by name: there is one object for each format, and `is` compares them."""
        return _format_named, (self.name,)

    def frame(self, name: str) -> tuple[str, str]:
        """The text before and after the arguments of a call of the tool `name`."""
        start, end = self.call
        return start.replace("%(json)s", json.dumps(name, ensure_ascii=False)).replace("%(name)s", name), end

    def markers(self) -> tuple[str, ...]:
        """All texts of the format that may contain control tokens."""
        python_tag = (self.python_tag,) if self.python_tag else ()
        grammar = (self.before, *self.call, self.between, self.after)
        return (*self.call_starts, *self.separators, *python_tag, *self.special_tokens, *grammar)

    def is_of(self, template: str) -> bool:
        """Whether `template` describes this format to the model."""
        return all(sign in template for sign in self.signs) and not any(
            text in template for text in self.without
        )


GPT_OSS = ToolFormat(
    "gpt-oss",
    signs=("<|channel|>",),
    call_starts=(
        "<|channel|>commentary to=functions.",
        "<|channel|>analysis to=functions.",
        " to=functions.",
        "to=functions.",
    ),
    call_header=re.compile(
        _NAME + r"(?:<\|channel\|>\w+)?\s*+(?:<\|constrain\|>)?(?:json)?\s*+<\|message\|>\s*+"
    ),
    separators=("<|call|>",),
    call=("<|channel|>commentary to=functions.%(name)s <|constrain|>json<|message|>", ""),
)
MISTRAL_NAMED = ToolFormat(
    "mistral",
    signs=("[TOOL_CALLS]", "[ARGS]"),
    call_starts=("[TOOL_CALLS]",),
    call_header=re.compile(r"\s*" + _NAME + r"(?:\[CALL_ID\](?P<id>\w+))?\[ARGS\]\s*"),
    separators=(",",),
    special_tokens=("[CALL_ID]",),
    call=("[TOOL_CALLS]%(name)s[ARGS]", ""),
    id_characters=9,
)
MISTRAL = ToolFormat(
    "mistral-list",
    signs=("[TOOL_CALLS]",),
    call_starts=("[TOOL_CALLS]",),
    separators=_LIST,
    before="[TOOL_CALLS][",
    call=_JSON_CALL,
    between=", ",
    after="]",
    id_characters=9,
)
_DEEPSEEK_STARTS = ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>")
_DEEPSEEK_ENDS = ("```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>")
_DEEPSEEK_HEADER = re.compile(
    r"\s*+(?:<｜tool▁call▁begin｜>)?(?:function<｜tool▁sep｜>)?"
    + _NAME
    + r"(?:<｜tool▁sep｜>)?\s*+(?:```json)?\s*+"
)
DEEPSEEK_FENCED = ToolFormat(
    "deepseek-fenced",
    signs=("<｜tool▁call", "```json"),
    call_starts=_DEEPSEEK_STARTS,
    call_header=_DEEPSEEK_HEADER,
    separators=_DEEPSEEK_ENDS,
    before="<｜tool▁calls▁begin｜>",
    call=("<｜tool▁call▁begin｜>function<｜tool▁sep｜>%(name)s\n```json\n", "\n```<｜tool▁call▁end｜>"),
    between="\n",
    after="<｜tool▁calls▁end｜>",
)
DEEPSEEK = ToolFormat(
    "deepseek",
    signs=("<｜tool▁call",),
    call_starts=_DEEPSEEK_STARTS,
    call_header=_DEEPSEEK_HEADER,
    separators=_DEEPSEEK_ENDS,
    before="<｜tool▁calls▁begin｜>",
    call=("<｜tool▁call▁begin｜>%(name)s<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    after="<｜tool▁calls▁end｜>",
)
KIMI = ToolFormat(
    "kimi",
    signs=("<|tool_call_argument_begin|>",),
    call_starts=("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
    call_header=re.compile(
        r"\s*+(?:<\|tool_call_begin\|>)?\s*+(?P<id>(?:functions\.)?(?P<name>[\w.-]+?)(?::\d+)?)"
        r"\s*<\|tool_call_argument_begin\|>\s*"
    ),
    separators=("<|tool_call_end|>", "<|tool_calls_section_end|>"),
    ends_reasoning=True,
    before="<|tool_calls_section_begin|>",
    call=("<|tool_call_begin|>functions.%(name)s:0<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    after="<|tool_calls_section_end|>",
)
SOLAR = ToolFormat(
    "solar",
    signs=("<|tool_call:name|>",),
    call_starts=("<|tool_call:begin|>",),
    call_header=re.compile(r"\s*(?P<id>[\w-]*)<\|tool_call:name\|>" + _NAME + r"<\|tool_call:args\|>\s*"),
    separators=("<|tool_call:end|>", "<|calls|>"),
    call=("<|tool_call:begin|>0<|tool_call:name|>%(name)s<|tool_call:args|>", "<|tool_call:end|>"),
)
COMMAND_R = ToolFormat(
    "command-r",
    signs=("<|START_ACTION|>",),
    call_starts=("<|START_ACTION|>",),
    separators=(*_LIST, "<|END_ACTION|>"),
    before="<|START_ACTION|>[",
    call=('{"tool_call_id": "0", "tool_name": %(json)s, "parameters": ', "}"),
    between=", ",
    after="]<|END_ACTION|>",
)
COMMAND_R_PLUS = ToolFormat(
    "command-r-plus",
    signs=("Action:", "tool_name"),
    call_starts=("Action: ```json", "Action:```json", "Action:\n```json"),
    separators=(*_LIST, "```"),
    before="Action: ```json\n[",
    call=('{"tool_name": %(json)s, "parameters": ', "}"),
    between=", ",
    after="]```",
)
FUNCTION_TAG = ToolFormat(
    "function-tag",
    signs=("<function=",),
    without=("<parameter=",),
    call_starts=("<function=",),
    call_header=re.compile(_NAME + r">\s*"),
    separators=("</function>",),
    python_tag="<|python_tag|>",
    call=("<function=%(name)s>", "</function>"),
    between="\n",
)
FUNCTIONARY = ToolFormat(
    "functionary",
    signs=(">>>all",),
    call_starts=(">>>",),
    call_header=re.compile(_NAME + r"\n\s*"),
    call=(">>>%(name)s\n", ""),
)
TOOLCALL = ToolFormat(
    "toolcall",
    signs=("<TOOLCALL>",),
    call_starts=("<TOOLCALL>",),
    separators=(*_LIST, "</TOOLCALL>"),
    before="<TOOLCALL>[",
    call=_JSON_CALL,
    between=", ",
    after="]</TOOLCALL>",
)
GRANITE = ToolFormat(
    "granite",  # and Phi 4
    signs=("<|tool_call|>",),
    call_starts=("<|tool_call|>",),
    separators=(*_LIST, "<|/tool_call|>"),
    before="<|tool_call|>[",
    call=_JSON_CALL,
    between=", ",
    after="]",
)
FIREFUNCTION = ToolFormat(
    "firefunction",
    signs=(" functools",),
    call_starts=("functools",),
    separators=_LIST,
    before=" functools[",
    call=_JSON_CALL,
    between=", ",
    after="]",
)
GIGACHAT = ToolFormat(
    "gigachat",
    signs=("function call", "<|role_sep|>"),
    call_starts=("<|message_sep|>\n\nfunction call<|role_sep|>",),
    before="<|message_sep|>\n\nfunction call<|role_sep|>\n",
    call=_JSON_CALL,
)
GIGACHAT_31 = ToolFormat(
    "gigachat-3.1",
    signs=("<|function_call|>",),
    call_starts=("<|function_call|>",),
    call=('<|function_call|>{"name": %(json)s, "arguments": ', "}"),
)
APRIEL = ToolFormat(
    "apriel",
    signs=("<tool_calls>[",),
    call_starts=("<tool_calls>",),
    separators=(*_LIST, "</tool_calls>"),
    before="<tool_calls>[",
    call=_JSON_CALL,
    between=", ",
    after="]</tool_calls>",
)
MINIMAX_M1 = ToolFormat(
    "minimax-m1",
    signs=("<tool_calls>\\n{",),
    call_starts=("<tool_calls>",),
    separators=("</tool_calls>",),
    before="<tool_calls>\n",
    call=_JSON_CALL,
    between="\n",
    after="\n</tool_calls>",
)
HERMES = ToolFormat(
    "hermes",
    signs=("<tool_call>",),
    without=("<parameter=", "<arg_key>", "<invoke", "<parameter "),  # arguments as XML: GENERIC
    call_starts=("<tool_call>", "<tool_calls>"),
    separators=("</tool_call>", "</tool_calls>", *_LIST),
    call=('<tool_call>\n{"name": %(json)s, "arguments": ', "}\n</tool_call>"),
    between="\n",
)
LLAMA = ToolFormat(
    "llama",
    signs=("<|start_header_id|>", "ipython"),
    separators=(";",),
    json_only=True,
    python_tag="<|python_tag|>",
    call=('{"name": %(json)s, "parameters": ', "}"),
    between="; ",
)
GENERIC = ToolFormat(
    "generic",
    separators=(",", "]", "}"),
    before='{"tool_calls": [',
    call=_JSON_CALL,
    between=", ",
    after="]}",
)
"""For templates with no known format: the tools are described in words, and the answer is made JSON."""

FORMATS = (
    *(GPT_OSS, MISTRAL_NAMED, MISTRAL, DEEPSEEK_FENCED, DEEPSEEK, KIMI, SOLAR, COMMAND_R, COMMAND_R_PLUS),
    *(FUNCTION_TAG, FUNCTIONARY, TOOLCALL, GRANITE, FIREFUNCTION, GIGACHAT_31, GIGACHAT),
    *(APRIEL, MINIMAX_M1, HERMES, LLAMA, GENERIC),
)
"""The first one whose signs a template contains is its format."""


def _format_named(name: str) -> ToolFormat:
    return next(each for each in FORMATS if each.name == name)


_IGNORED = (
    (
        "<|channel|>",
        (
            "<|start|>assistant",
            "<|channel|>final<|message|>",
            "<|channel|>final <|constrain|>json<|message|>",
            "<|channel|>commentary<|message|>",
            "<|channel|>commentary to=assistant",
            "<|end|>",
        ),
    ),
    ("<|START_RESPONSE|>", ("<|START_RESPONSE|>", "<|END_RESPONSE|>")),
    ("<|START_TEXT|>", ("<|START_TEXT|>", "<|END_TEXT|>")),
    ("<response></response>", ("<response>", "</response>")),  # Granite 3.3
    ("<|calls|>", ("<|begin|>assistant", "<|content|>", "<|tool_calls|>", "<|end|>")),  # Solar Open
    (">>>all", (">>>all\n",)),  # Functionary 3.2
    ("<mm:think>", ("</mm:think>",)),  # MiniMax M3, before answers without reasoning
)
"""By a text in the template: markers without meaning anywhere in an answer."""


def detect_tool_format(template: str, *, takes_tools: bool) -> ToolFormat:
    """The format of a chat template; GENERIC for one that does not describe tools in a known way."""
    return next(each for each in FORMATS if each.is_of(template)) if takes_tools else GENERIC


def detect_ignored_markers(template: str) -> tuple[str, ...]:
    """The markers in a model's answers to leave out, with tools or without."""
    return tuple(marker for sign, markers in _IGNORED if sign in template for marker in markers)


def unfinished_marker(prompt: str) -> str:
    """The beginning of a marker at the end of `prompt`, which an answer continues (Functionary 3.2)."""
    return ">>>" if prompt.endswith(">>>") else ""


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """start, end: around the reasoning. turn, content: before content, and between it and reasoning.

    interleaved: reasoning may also follow content.
    """

    start: str
    end: str
    content: str = ""
    turn: str = ""
    interleaved: bool = False

    def is_open(self, prompt: str) -> bool:
        """Whether `prompt` ends inside reasoning: the template began it."""
        return prompt.rstrip().endswith(self.start)

    def resume(self, prompt: str, reasoning: str, content: str) -> str:
        """What to append to `prompt` so that the model continues after `reasoning` and `content`."""
        opened = self.is_open(prompt)
        if not reasoning and not opened:
            return self.content + content
        start = "" if opened else self.start
        if self.content:
            return start + reasoning + (self.end + self.turn + self.content + content if content else "")
        start = start and f"{start}\n"
        return f"{start}{reasoning}\n{self.end}\n\n{content}" if content else start + reasoning


_HARMONY = ReasoningMarkers(
    "<|channel|>analysis<|message|>",
    "<|end|>",
    content="<|channel|>final<|message|>",
    turn="<|start|>assistant",
    interleaved=True,
)
_THINK = ReasoningMarkers("<think>", "</think>")
_BY_SIGN = {
    "<|channel|>": _HARMONY,
    "<think>": _THINK,  # DeepSeek R1, Qwen 3, QwQ and most others
    "</think>": _THINK,
    "<think{}>": ReasoningMarkers("<think:opensource>", "</think:opensource>"),  # Hunyuan 3
    "[THINK]": ReasoningMarkers("[THINK]", "[/THINK]"),  # Magistral, Ministral
    "<|START_THINKING|>": ReasoningMarkers("<|START_THINKING|>", "<|END_THINKING|>"),  # Command R7B, A
    "<seed:think>": ReasoningMarkers("<seed:think>", "</seed:think>"),  # Seed-OSS
    "<mm:think>": ReasoningMarkers("<mm:think>", "</mm:think>"),  # MiniMax M3
    "<|channel>thought": ReasoningMarkers("<|channel>thought", "<channel|>", interleaved=True),  # Gemma 4
    "<|inner_prefix|>": ReasoningMarkers("<|inner_prefix|>", "<|inner_suffix|>", interleaved=True),  # Apertus
    "<|think|>": ReasoningMarkers("<|think|>", "<|end|>", interleaved=True),  # Solar Open
    "Here are my reasoning steps:": ReasoningMarkers(
        "Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"
    ),  # Apriel 1.6
}
"""By a text in the chat template; the first one counts."""


def detect_reasoning(template: str) -> ReasoningMarkers | None:
    """The markers of a chat template's model; None for a model that does not reason."""
    return next((markers for sign, markers in _BY_SIGN.items() if sign in template), None)


@dataclass(frozen=True, slots=True)
class ParserConfig:
    """How to parse an answer.

    reasoning: None leaves reasoning in the content. in_reasoning: the prompt ends inside reasoning, which the
    client began if continues_reasoning.
    tool_format: None finds no calls. tools: the names of those offered. one_call: ignore all but the first.
    prefix: content that the prompt contains and the client should receive, too.
    unfinished: the beginning of a marker that the prompt contains.
    special_tokens: control tokens whose text the parser has to see.
    """

    reasoning: ReasoningMarkers | None = None
    in_reasoning: bool = False
    continues_reasoning: bool = False
    tool_format: ToolFormat | None = None
    ignored_markers: tuple[str, ...] = ()
    tools: frozenset[str] = frozenset()
    one_call: bool = False
    prefix: str = ""
    unfinished: str = ""
    special_tokens: frozenset[int] = frozenset()

    def markers(self) -> set[str]:
        """All texts whose control tokens the parser has to see."""
        markers = set(self.ignored_markers)
        markers |= {self.reasoning.start, self.reasoning.end} if self.reasoning else set()
        return markers | set(self.tool_format.markers() if self.tool_format else ())
