"""Answers that servers stream as server-sent events: JSON objects and, with OpenAI's API, [DONE]."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from httpx_sse import EventSource, ServerSentEvent
from pydantic_core import from_json


class AnswerStream:
    """The events of an answer, up to the end of the response; [DONE] is an empty one.

    Iterating raises SSEError if it is no event stream, ValueError if an event is no JSON, and httpx's errors.
    """

    def __init__(self, source: EventSource) -> None:
        self.done = False
        """Whether [DONE] has arrived: then nothing of the answer is missing."""
        self._source = source

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self._read, self._source.iter_sse())

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        async for event in self._source.aiter_sse():
            yield self._read(event)

    def _read(self, event: ServerSentEvent) -> dict[str, Any]:
        if event.data == "[DONE]":
            self.done = True
            return {}
        found: dict[str, Any] = from_json(event.data)
        return found
