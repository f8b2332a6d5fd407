"""Answers as the items and events of OpenAI's Responses API."""

import secrets
from collections.abc import Iterable, Iterator
from typing import Any

from lead.chat.deltas import Content, Delta, Reasoning, ToolCallArguments, ToolCallStart

Event = dict[str, Any]


class ItemEvents:
    """Tells deltas as output items, one after the other; `output` are the items so far."""

    def __init__(self) -> None:
        self.output: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None

    def push(self, deltas: Iterable[Delta]) -> Iterator[Event]:
        """The events of `deltas`, without sequence numbers."""
        for delta in deltas:
            match delta:
                case Content(text):
                    yield from self._say(text)
                case Reasoning(text):
                    yield from self._think(text)
                case ToolCallStart(_, call_id, name):
                    yield from self.finish()
                    call = {"call_id": call_id, "name": name, "arguments": ""}
                    yield self._add("function_call", "fc", call)
                case ToolCallArguments(_, text):
                    assert self._open
                    self._open["arguments"] += text
                    yield self._event("response.function_call_arguments.delta", delta=text)

    def finish(self, status: str = "completed") -> Iterator[Event]:
        """The end of the item that is open."""
        item = self._open
        if item is None:
            return
        match item["type"]:
            case "message":
                part = item["content"][0]
                yield self._event(
                    "response.output_text.done", content_index=0, text=part["text"], logprobs=[]
                )
                yield self._event("response.content_part.done", content_index=0, part=dict(part))
            case "reasoning":
                text = item["content"][0]["text"]
                yield self._event("response.reasoning_text.done", content_index=0, text=text)
            case _:
                arguments, name = item["arguments"], item["name"]
                yield self._event("response.function_call_arguments.done", arguments=arguments, name=name)
        item["status"] = status
        yield {"type": "response.output_item.done", "output_index": self._index, "item": dict(item)}
        self._open = None

    def _say(self, text: str) -> Iterator[Event]:
        if self._open is None or self._open["type"] != "message":
            yield from self.finish()
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            yield self._add("message", "msg", {"role": "assistant", "content": []})
            yield self._event("response.content_part.added", content_index=0, part=dict(part))
            self._item["content"] = [part]
        self._item["content"][0]["text"] += text
        yield self._event("response.output_text.delta", content_index=0, delta=text, logprobs=[])

    def _think(self, text: str) -> Iterator[Event]:
        if self._open is None or self._open["type"] != "reasoning":
            yield from self.finish()
            yield self._add("reasoning", "rs", {"summary": [], "content": []})
            self._item["content"] = [{"type": "reasoning_text", "text": ""}]
        self._item["content"][0]["text"] += text
        yield self._event("response.reasoning_text.delta", content_index=0, delta=text)

    @property
    def _item(self) -> dict[str, Any]:
        assert self._open is not None
        return self._open

    @property
    def _index(self) -> int:
        return len(self.output) - 1

    def _add(self, kind: str, prefix: str, fields: dict[str, Any]) -> Event:
        self._open = {
            "id": f"{prefix}_{secrets.token_hex(12)}",
            "type": kind,
            "status": "in_progress",
            **fields,
        }
        self.output.append(self._open)
        return {"type": "response.output_item.added", "output_index": self._index, "item": dict(self._open)}

    def _event(self, kind: str, **fields: Any) -> Event:
        return {"type": kind, "item_id": self._item["id"], "output_index": self._index, **fields}
