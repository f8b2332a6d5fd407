"""Renders answers as Anthropic's messages and streaming events."""

import secrets
from collections.abc import Iterator

from lead.chat_format.deltas import (
    AssistantMessage,
    Content,
    Delta,
    Reasoning,
    ToolCallArguments,
    ToolCallStart,
)
from lead.engine_client.answer_stats import AnswerStats
from lead.http.answers import AnswerEnd, AnswerUpdate, WholeAnswer
from lead.http.error_responses import error_body
from lead.http.generation_request import GenerationRequest
from lead.http.services import Services
from lead.http.sse import JsonObject, Renderer, SseEvent

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class AnthropicRenderer(Renderer):
    """Renders an answer as a message with a list of content blocks. A stream begins with the first text."""

    def __init__(self, request: GenerationRequest, services: Services) -> None:
        self._n_prompt = len(request.first.tokens)
        self._message = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": services.alias,
        }
        self._begun = False
        self._blocks = _BlockEvents()

    def render(self, update: AnswerUpdate) -> Iterator[SseEvent]:
        if not self._begun and (update.deltas or update.end):
            self._begun = True
            yield from self._begin(update.n_cached)
        for delta in update.deltas:
            yield from self._blocks.push(delta)
        if update.end:
            yield from self._blocks.finish()
            yield {"type": "message_delta", "delta": _stop(update.end), "usage": _usage(update.end.stats)}
            yield {"type": "message_stop"}

    def error(self, error: Exception) -> Iterator[SseEvent]:
        message = error_body(error)["error"]["message"]
        yield {"type": "error", "error": {"type": "api_error", "message": message}}

    def whole(self, answers: list[WholeAnswer]) -> JsonObject:
        (answer,) = answers
        content = {
            "content": _content(answer.message),
            **_stop(answer.end),
            "usage": _usage(answer.end.stats),
        }
        return self._message | content

    def _begin(self, n_cached: int) -> Iterator[SseEvent]:
        usage = _usage(AnswerStats(self._n_prompt, n_cached))
        stop = {"stop_reason": None, "stop_sequence": None}
        yield {"type": "message_start", "message": {**self._message, "content": [], **stop, "usage": usage}}
        yield {"type": "ping"}


class _BlockEvents:
    """Converts deltas to the events of content blocks, one block after the other."""

    def __init__(self) -> None:
        self._index = -1
        self._open: str | None = None

    def push(self, delta: Delta) -> Iterator[SseEvent]:
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

    def finish(self) -> Iterator[SseEvent]:
        """Yield the end of the last block. An answer without a block gets an empty text block."""
        if self._index < 0:
            yield from self._block("text", {"type": "text", "text": ""})
        yield from self._close()

    def _block(self, kind: str, block: JsonObject) -> Iterator[SseEvent]:
        if self._open == kind:
            return
        yield from self._close()
        self._open = kind
        self._index += 1
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _close(self) -> Iterator[SseEvent]:
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": ""})
        if self._open:
            yield {"type": "content_block_stop", "index": self._index}
        self._open = None

    def _delta(self, delta: JsonObject) -> SseEvent:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}


def _content(message: AssistantMessage) -> list[JsonObject]:
    content: list[JsonObject] = []
    if message.reasoning:
        content.append({"type": "thinking", "thinking": message.reasoning, "signature": ""})
    if message.content or not message.calls:
        content.append({"type": "text", "text": message.content})
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.as_object}
        for call in message.calls
    ]
    return content


def _stop(end: AnswerEnd) -> JsonObject:
    stop = end.stop_string
    reason = "stop_sequence" if stop and end.reason == "stop" else _STOP_REASONS[end.reason]
    return {"stop_reason": reason, "stop_sequence": stop}


def _usage(stats: AnswerStats) -> JsonObject:
    return {
        "input_tokens": stats.n_prompt - stats.n_cached,
        "cache_read_input_tokens": stats.n_cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": stats.n_generated,
    }
