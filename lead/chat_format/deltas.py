"""The parts of an answer: as increments while it is generated, and as a whole message."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from pydantic_core import from_json


@dataclass(frozen=True, slots=True)
class Reasoning:
    """An increment of reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """An increment of content."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """The beginning of a tool call; `index` counts the calls of one answer."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """An increment of a call's arguments, as JSON text."""

    index: int
    text: str


Delta = Reasoning | Content | ToolCallStart | ToolCallArguments


def merge_deltas(deltas: Iterable[Delta]) -> list[Delta]:
    """Return `deltas` with adjacent deltas of the same kind joined."""
    return [_joined(list(group)) for _, group in groupby(deltas, _kind)]


def _kind(delta: Delta) -> object:
    """Return a key; deltas with equal keys can be joined."""
    match delta:
        case ToolCallArguments(index):
            return index
        case ToolCallStart(index):
            return "start", index
    return type(delta)


def _joined(deltas: Sequence[Delta]) -> Delta:
    first = deltas[0]
    if len(deltas) == 1 or isinstance(first, ToolCallStart):
        return first
    return replace(
        first, text="".join(delta.text for delta in deltas if not isinstance(delta, ToolCallStart))
    )


@dataclass(slots=True)
class ToolCall:
    """A complete tool call; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str = ""

    @property
    def as_object(self) -> dict[str, Any]:
        """The arguments as an object; empty if the call was cut off."""
        try:
            value = from_json(self.arguments)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


@dataclass(slots=True)
class AssistantMessage:
    """An answer as a message, built from its deltas."""

    content: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)

    @classmethod
    def of(cls, deltas: Iterable[Delta]) -> "AssistantMessage":
        texts: defaultdict[object, list[str]] = defaultdict(list)
        calls: list[ToolCall] = []
        for delta in deltas:
            match delta:
                case ToolCallStart():
                    calls.append(ToolCall(delta.id, delta.name))
                case _:
                    texts[_kind(delta)].append(delta.text)
        for index, call in enumerate(calls):
            call.arguments = "".join(texts[index])
        return cls("".join(texts[Content]), "".join(texts[Reasoning]), calls)
