"""The parts of an answer, as it is generated and as a whole."""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """More content."""

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


def merge_deltas(deltas: Iterable[Delta]) -> list[Delta]:
    """`deltas`, with neighbours of one kind joined."""
    merged: list[Delta] = []
    for delta in deltas:
        match merged[-1] if merged else None, delta:
            case Content(before), Content(after):
                merged[-1] = Content(before + after)
            case Reasoning(before), Reasoning(after):
                merged[-1] = Reasoning(before + after)
            case ToolCallArguments(index, before), ToolCallArguments(other, after) if index == other:
                merged[-1] = ToolCallArguments(index, before + after)
            case _:
                merged.append(delta)
    return merged


@dataclass(slots=True)
class ToolCall:
    """A whole tool call; `arguments` is JSON text."""

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
        """Append `deltas`."""
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
