"""Renders answers as responses of OpenAI's Responses API and their events."""

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lead.apis.responses.responses_request import ResponsesRequest
from lead.chat_format.deltas import Content, Delta, Reasoning, ToolCallArguments, ToolCallStart
from lead.http.answers import AnswerEnd, AnswerUpdate, WholeAnswer
from lead.http.error_responses import error_body
from lead.http.generation_request import GenerationRequest
from lead.http.services import Services
from lead.http.sse import JsonObject, Renderer, SseEvent


class ResponsesRenderer(Renderer):
    """Renders a response as a list of output items.

    A stream begins with the first text, and its events are numbered.
    """

    def __init__(self, body: ResponsesRequest, request: GenerationRequest, services: Services) -> None:
        self._response = _response(body, request, services)
        self._items = _ItemEvents(body.names())
        self._n_events = 0

    def render(self, update: AnswerUpdate) -> Iterator[SseEvent]:
        if self._n_events or update.deltas or update.end:
            yield from self._numbered(self._events(update))

    def error(self, error: Exception) -> Iterator[SseEvent]:
        yield from self._numbered(self._failure(error_body(error)["error"]))

    def whole(self, answers: list[WholeAnswer]) -> JsonObject:
        (answer,) = answers
        for delta in answer.deltas:
            for _ in self._items.push(delta):
                pass
        response, _ = self._end(answer.end)
        return response

    def _events(self, update: AnswerUpdate) -> Iterator[JsonObject]:
        yield from self._begin()
        for delta in update.deltas:
            yield from self._items.push(delta)
        if update.end:
            response, closing = self._end(update.end)
            yield from closing
            yield {"type": f"response.{response['status']}", "response": response}

    def _failure(self, error: JsonObject) -> Iterator[JsonObject]:
        message = error["message"]
        yield from self._begin()
        yield {"type": "error", "code": error["code"] or error["type"], "message": message, "param": None}
        for _ in self._items.finish("incomplete"):
            pass
        invalid = "invalid_prompt" if error["type"] == "invalid_request_error" else "server_error"
        code = error["code"] or invalid
        failed = {"status": "failed", "error": {"code": code, "message": message}}
        response = self._response | failed | {"output": self._items.output}
        yield {"type": "response.failed", "response": response}

    def _begin(self) -> Iterator[JsonObject]:
        """Yield the first events, unless they have been sent."""
        if not self._n_events:
            yield {"type": "response.created", "response": self._response}
            yield {"type": "response.in_progress", "response": self._response}

    def _numbered(self, events: Iterable[JsonObject]) -> Iterator[SseEvent]:
        for event in events:
            yield {"sequence_number": self._n_events, **event}
            self._n_events += 1

    def _end(self, end: AnswerEnd) -> tuple[JsonObject, list[JsonObject]]:
        """End the last item; return the whole response, and the events of this end."""
        status = "incomplete" if end.reason == "length" else "completed"
        closing = list(self._items.finish(status))
        details = {"reason": "max_output_tokens"} if status == "incomplete" else None
        changes = {"status": status, "incomplete_details": details, "usage": _usage(end)}
        return self._response | changes | {"output": self._items.output}, closing


class _ItemEvents:
    """Converts deltas to the events of output items, one item after the other. output: the items so far."""

    def __init__(self, names: Mapping[str, JsonObject]) -> None:
        """names: the namespace and name of a function in a namespace, by its name for the model."""
        self.output: list[JsonObject] = []
        self._names = names
        self._open: JsonObject | None = None
        self._texts: list[str] = []  # of the open item

    def push(self, delta: Delta) -> Iterator[JsonObject]:
        match delta:
            case Content(text):
                yield from self._text(text)
            case Reasoning(text):
                yield from self._reasoning(text)
            case ToolCallStart(_, call_id, name):
                yield from self.finish()
                call = {"call_id": call_id, **self._names.get(name, {"name": name}), "arguments": ""}
                yield self._add("function_call", "fc", call)
            case ToolCallArguments(_, text):
                self._texts.append(text)
                yield self._event("response.function_call_arguments.delta", delta=text)

    def finish(self, status: str = "completed") -> Iterator[JsonObject]:
        item = self._open
        if item is None:
            return
        text, self._texts = "".join(self._texts), []
        match item["type"]:
            case "message":
                item["content"][0]["text"] = text
                part = item["content"][0]
                yield self._event(
                    "response.output_text.done", content_index=0, text=part["text"], logprobs=[]
                )
                yield self._event("response.content_part.done", content_index=0, part=dict(part))
            case "reasoning":
                item["content"][0]["text"] = text
                yield self._event("response.reasoning_text.done", content_index=0, text=text)
            case _:
                item["arguments"], name = text, item["name"]
                yield self._event("response.function_call_arguments.done", arguments=text, name=name)
        item["status"] = status
        yield {"type": "response.output_item.done", "output_index": self._index, "item": dict(item)}
        self._open = None

    def _text(self, text: str) -> Iterator[JsonObject]:
        if self._open is None or self._open["type"] != "message":
            yield from self.finish()
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            yield self._add("message", "msg", {"role": "assistant", "content": []})
            yield self._event("response.content_part.added", content_index=0, part=dict(part))
            self._item["content"] = [part]
        self._texts.append(text)
        yield self._event("response.output_text.delta", content_index=0, delta=text, logprobs=[])

    def _reasoning(self, text: str) -> Iterator[JsonObject]:
        if self._open is None or self._open["type"] != "reasoning":
            yield from self.finish()
            yield self._add("reasoning", "rs", {"summary": [], "content": []})
            self._item["content"] = [{"type": "reasoning_text", "text": ""}]
        self._texts.append(text)
        yield self._event("response.reasoning_text.delta", content_index=0, delta=text)

    @property
    def _item(self) -> JsonObject:
        assert self._open is not None
        return self._open

    @property
    def _index(self) -> int:
        return len(self.output) - 1

    def _add(self, kind: str, prefix: str, fields: JsonObject) -> JsonObject:
        self._open = {
            "id": f"{prefix}_{secrets.token_hex(12)}",
            "type": kind,
            "status": "in_progress",
            **fields,
        }
        self.output.append(self._open)
        return {"type": "response.output_item.added", "output_index": self._index, "item": dict(self._open)}

    def _event(self, kind: str, **fields: Any) -> JsonObject:
        return {"type": kind, "item_id": self._item["id"], "output_index": self._index, **fields}


def _response(body: ResponsesRequest, request: GenerationRequest, services: Services) -> JsonObject:
    text_format = body.text.format if body.text else None
    return {
        "id": f"resp_{secrets.token_hex(12)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "model": services.alias,
        "output": [],
        "parallel_tool_calls": not (request.parser and request.parser.one_call),
        "previous_response_id": None,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "store": False,
        "temperature": request.first.sampling.temperature,
        "text": {"format": text_format or {"type": "text"}},
        "tool_choice": body.tool_choice or "auto",
        "tools": body.usable_tools(),
        "top_p": request.first.sampling.top_p,
        "truncation": "disabled",
        "usage": None,
    }


def _usage(end: AnswerEnd) -> JsonObject:
    stats = end.stats
    return {
        "input_tokens": stats.n_prompt,
        "input_tokens_details": {"cached_tokens": stats.n_cached, "cache_write_tokens": 0},
        "output_tokens": stats.n_generated,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": stats.n_prompt + stats.n_generated,
    }
