"""How the text of an answer is to be parsed: known before it begins."""

from dataclasses import dataclass

from lead.chat.reasoning import ReasoningMarkers
from lead.chat.tool_formats import ToolFormat


@dataclass(frozen=True, slots=True)
class ParserConfig:
    """How to parse an answer.

    reasoning: None leaves reasoning in the content. in_reasoning: the prompt ends inside reasoning, which the
    client began if continues_reasoning.
    tool_format: None finds no calls. tools: the names of those offered. one_call: ignore all but the first.
    prefix: content that the prompt contains and the client should receive, too.
    unfinished: the beginning of a marker that the prompt contains.
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

    def markers(self) -> set[str]:
        """All texts whose control tokens the parser has to see."""
        markers = set(self.ignored_markers)
        markers |= {self.reasoning.start, self.reasoning.end} if self.reasoning else set()
        return markers | set(self.tool_format.markers() if self.tool_format else ())
