"""The format of a model's answers and the settings of their parser; `lead.chat_format.answer_probes` derives
the format.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lead.chat_format.calls import AnyCallFormat


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """The texts around reasoning, as the template writes them, with white space.

    turn, content: texts between `closing` and the content of the answer; without reasoning, the template
    writes only the text `content`. field: the message field from which the template takes reasoning;
    "content" if reasoning is a part of the content. interleaved: reasoning may follow content, too.
    """

    opening: str
    closing: str
    turn: str = ""
    content: str = ""
    field: str = "reasoning_content"
    interleaved: bool = False

    @property
    def start(self) -> str:
        """The opening marker without white space around it, except for a blank before a plain word."""
        return self.opening.strip() if self.opening.lstrip()[:1] in "<[" else self.opening.rstrip()

    @property
    def end(self) -> str:
        return self.closing.strip()

    def is_open(self, prompt: str) -> bool:
        """Return whether `prompt` ends inside reasoning that the template began."""
        return prompt.rstrip().endswith(self.start)

    def split_own(self, content: str) -> tuple[str, str, str] | None:
        """Split content into reasoning, the end marker (empty if it is missing), and the rest.

        None: the content does not begin with reasoning in markers.
        """
        text, start = content.lstrip(), self.start.lstrip()
        return text.removeprefix(start).partition(self.end) if text.startswith(start) else None

    def unopened(self, prompt: str) -> str:
        """Return `prompt` without markers at its end with which the template began, or skipped, reasoning."""
        start, end = re.escape(self.start), re.escape(self.end)
        return re.sub(rf"(?:{start}\s*)?(?:{end}\s*)?\Z", "", prompt, count=1)

    def resume(self, prompt: str, reasoning: str, content: str) -> str:
        """Return the text to append to `prompt` so that the model continues after `reasoning` and
        `content`.
        """
        opened = self.is_open(prompt)
        if not reasoning and not opened:
            return self.content + content
        begun = reasoning if opened else self.opening + reasoning
        return f"{begun}{self.closing}{self.turn}{self.content}{content}" if content else begun


def with_thinking(reasoning: str, content: str) -> list[dict[str, str]]:
    """Return the content with a part for reasoning, in the form of Mistral's API."""
    return [{"type": "thinking", "thinking": reasoning}, {"type": "text", "text": content}]


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The format of a model's answers.

    reasoning: its markers; None: the model does not reason. ignored: markers without meaning, anywhere in an
    answer. unfinished: the beginning of a marker at the end of prompts, which the answer completes
    (Functionary 3.2).
    """

    reasoning: ReasoningMarkers | None = None
    ignored: tuple[str, ...] = ()
    unfinished: str = ""


@dataclass(frozen=True, slots=True)
class ParserConfig:
    """The settings of an answer's parser.

    reasoning: its markers; None: reasoning stays in the content. in_reasoning: the prompt ends inside
    reasoning. continues_reasoning: the client began this reasoning. tool_format: the format of calls; None:
    calls are not parsed. types: the types of arguments, by tool. tools: the names of the offered tools.
    one_call: ignore all calls except the first. used_ids: ids of earlier calls, which new calls do not get.
    prefix: content in the prompt that the client receives, too. unfinished: the beginning of a marker in the
    prompt. special_tokens: control tokens whose text the parser must see.
    """

    reasoning: ReasoningMarkers | None = None
    in_reasoning: bool = False
    continues_reasoning: bool = False
    tool_format: AnyCallFormat | None = None
    types: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    ignored_markers: tuple[str, ...] = ()
    tools: frozenset[str] = frozenset()
    one_call: bool = False
    used_ids: frozenset[str] = frozenset()
    prefix: str = ""
    unfinished: str = ""
    special_tokens: frozenset[int] = frozenset()

    def markers(self) -> set[str]:
        """Return all markers; the parser must see the control tokens in them."""
        markers = set(self.ignored_markers)
        markers |= {self.reasoning.start, self.reasoning.end} if self.reasoning else set()
        return markers | set(self.tool_format.markers() if self.tool_format else ())
