"""Renders answers as Ollama's objects: one per line of a stream, the last one with statistics."""

from collections.abc import Iterator
from typing import ClassVar

from pydantic_core import to_json

from lead.apis.ollama.ollama_records import time_text
from lead.chat_format.deltas import Content, Delta, Reasoning, ToolCall, ToolCallArguments, ToolCallStart
from lead.http.answers import AnswerEnd, AnswerUpdate, WholeAnswer
from lead.http.error_responses import error_body
from lead.http.sse import JsonObject, Renderer, SseEvent

_NANOSECONDS = 1_000_000_000


class OllamaRenderer(Renderer):
    """Renders answers of Ollama's API.

    is_chat: write messages for `/api/chat`, else texts for `/api/generate`. model: the name that the client
    uses.
    """

    media_type: ClassVar = "application/x-ndjson"
    ping: ClassVar = b""  # a client parses every line

    def __init__(self, model: str, *, is_chat: bool) -> None:
        self._model = model
        self._is_chat = is_chat
        self._call: ToolCall | None = None  # the call whose arguments are not complete yet

    def line(self, event: SseEvent) -> bytes:
        return to_json(event) + b"\n"

    def render(self, update: AnswerUpdate) -> Iterator[SseEvent]:
        for delta in update.deltas:
            yield from self._delta(delta)
        if update.end:
            yield from self._complete_call()
            yield self._part(Content("")) | _figures(update.end)

    def error(self, error: Exception) -> Iterator[SseEvent]:
        yield {"error": error_body(error)["error"]["message"]}

    def whole(self, answers: list[WholeAnswer]) -> JsonObject:
        (answer,) = answers
        message = answer.message
        fields = self._fields(message.content, message.reasoning, [_call(call) for call in message.calls])
        return self._head() | fields | _figures(answer.end)

    def loaded(self, *, unloads: bool) -> JsonObject:
        """Return the reply to a request that only loads or unloads the model."""
        return self._part(Content("")) | {"done": True, "done_reason": "unload" if unloads else "load"}

    def _delta(self, delta: Delta) -> Iterator[SseEvent]:
        """Yield the events of `delta`. A call is sent when it is complete, not in parts."""
        match delta:
            case ToolCallStart(_, call_id, name):
                yield from self._complete_call()
                self._call = ToolCall(call_id, name)
            case ToolCallArguments(_, text):
                assert self._call
                self._call.arguments += text
            case _:
                yield from self._complete_call()
                yield self._part(delta)

    def _complete_call(self) -> Iterator[SseEvent]:
        if self._call:
            yield self._head() | self._fields("", "", [_call(self._call)]) | {"done": False}
        self._call = None

    def _part(self, delta: Content | Reasoning) -> JsonObject:
        is_reasoning = isinstance(delta, Reasoning)
        content, reasoning = ("", delta.text) if is_reasoning else (delta.text, "")
        return self._head() | self._fields(content, reasoning, []) | {"done": False}

    def _head(self) -> JsonObject:
        return {"model": self._model, "created_at": time_text()}

    def _fields(self, content: str, reasoning: str, calls: list[JsonObject]) -> JsonObject:
        optional: JsonObject = {"thinking": reasoning} if reasoning else {}
        if calls:
            optional["tool_calls"] = calls
        if self._is_chat:
            return {"message": {"role": "assistant", "content": content} | optional}
        return {"response": content} | optional


def _call(call: ToolCall) -> JsonObject:
    return {"function": {"name": call.name, "arguments": call.as_object}}


def _figures(end: AnswerEnd) -> JsonObject:
    """Return the statistics of an answer, with durations in nanoseconds.

    As in Ollama, `prompt_eval_count` includes cached tokens.
    """
    stats = end.stats
    prompt, generation = (
        round(_NANOSECONDS * seconds) for seconds in (stats.prompt_seconds, stats.generation_seconds)
    )
    return {
        "done": True,
        "done_reason": "length" if end.reason == "length" else "stop",
        "total_duration": prompt + generation,
        "load_duration": 0,
        "prompt_eval_count": stats.n_prompt,
        "prompt_eval_duration": prompt,
        "eval_count": stats.n_generated,
        "eval_duration": generation,
    }
