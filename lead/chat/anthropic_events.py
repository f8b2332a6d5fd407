"""Answers as Anthropic's events and messages."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from lead.chat.deltas import AssistantMessage, Content, Delta, Reasoning, ToolCallArguments, ToolCallStart

Event = dict[str, Any]

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def stop_reason(finish_reason: str) -> str:
    """Anthropic's word for OpenAI's."""
    return _STOP_REASONS[finish_reason]


def blocks(said: AssistantMessage) -> list[dict[str, Any]]:
    """A whole answer's content."""
    content: list[dict[str, Any]] = []
    if said.reasoning:
        content.append({"type": "thinking", "thinking": said.reasoning, "signature": ""})
    if said.content or not said.calls:
        content.append({"type": "text", "text": said.content})
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _object(call.arguments)}
        for call in said.calls
    ]
    return content


class BlockEvents:
    """Tells deltas as content blocks, one after the other."""

    def __init__(self) -> None:
        self._index = -1
        self._open: str | None = None

    def push(self, deltas: Iterable[Delta]) -> Iterator[Event]:
        """The events of `deltas`."""
        for delta in deltas:
            match delta:
                case Content(text):
                    yield from self._block("text", {"type": "text", "text": ""})
                    yield self._delta({"type": "text_delta", "text": text})
                case Reasoning(text):
                    yield from self._block("thinking", {"type": "thinking", "thinking": "", "signature": ""})
                    yield self._delta({"type": "thinking_delta", "thinking": text})
                case ToolCallStart(_, call_id, name):
                    yield from self._close()
                    block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
                    yield from self._block("tool_use", block)
                case ToolCallArguments(_, text):
                    yield self._delta({"type": "input_json_delta", "partial_json": text})

    def finish(self) -> Iterator[Event]:
        """The end of the last block; an answer has at least one."""
        if self._index < 0:
            yield from self._block("text", {"type": "text", "text": ""})
        yield from self._close()

    def _block(self, kind: str, block: dict[str, Any]) -> Iterator[Event]:
        if self._open == kind:
            return
        yield from self._close()
        self._open = kind
        self._index += 1
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _close(self) -> Iterator[Event]:
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": ""})
        if self._open:
            yield {"type": "content_block_stop", "index": self._index}
        self._open = None

    def _delta(self, delta: dict[str, Any]) -> Event:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}


def _object(arguments: str) -> dict[str, Any]:
    """A call that was cut off has no input that anybody could use."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
