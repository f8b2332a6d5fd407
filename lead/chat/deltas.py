"""What an answer consists of, in the order in which it becomes known."""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More of what the model thinks."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """More of what the model says."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """The model calls a tool; `index` counts the calls of one answer."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """More of a call's arguments, as JSON text."""

    index: int
    text: str


Delta = Reasoning | Content | ToolCallStart | ToolCallArguments


@dataclass(slots=True)
class ToolCall:
    """A whole call."""

    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class AssistantMessage:
    """A whole answer."""

    content: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)

    def add(self, deltas: Iterable[Delta]) -> None:
        """Take in what has become known."""
        for delta in deltas:
            match delta:
                case Reasoning():
                    self.reasoning += delta.text
                case Content():
                    self.content += delta.text
                case ToolCallStart():
                    self.calls.append(ToolCall(delta.id, delta.name))
                case ToolCallArguments():
                    self.calls[delta.index].arguments += delta.text
