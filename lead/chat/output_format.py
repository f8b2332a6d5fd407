"""How models write reasoning, recognised by texts in the chat template; and how an answer is parsed."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lead.tools.argument_types import Types
from lead.tools.call_format import CallFormat

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

    def unopened(self, prompt: str) -> str:
        """`prompt` without the reasoning that the template has begun, or left empty, at its end."""
        start, end = re.escape(self.start), re.escape(self.end)
        return re.sub(rf"{start}\s*(?:{end}\s*)?\Z", "", prompt)

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
    tool_format: None finds no calls. tools: the names of those offered; types: of
    their arguments. one_call: ignore all but the first. used_ids: of calls before, which no other may have.
    prefix: content that the prompt contains and the client should receive, too.
    unfinished: the beginning of a marker that the prompt contains.
    special_tokens: control tokens whose text the parser has to see.
    """

    reasoning: ReasoningMarkers | None = None
    in_reasoning: bool = False
    continues_reasoning: bool = False
    tool_format: CallFormat | None = None
    types: Mapping[str, Mapping[str, Types]] = field(default_factory=dict)
    ignored_markers: tuple[str, ...] = ()
    tools: frozenset[str] = frozenset()
    one_call: bool = False
    used_ids: frozenset[str] = frozenset()
    prefix: str = ""
    unfinished: str = ""
    special_tokens: frozenset[int] = frozenset()

    def markers(self) -> set[str]:
        """All texts whose control tokens the parser has to see."""
        markers = set(self.ignored_markers)
        markers |= {self.reasoning.start, self.reasoning.end} if self.reasoning else set()
        return markers | set(self.tool_format.markers() if self.tool_format else ())
