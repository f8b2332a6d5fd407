"""Reads answers that servers stream as server-sent events: JSON objects and, in OpenAI's API, [DONE]."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from httpx_sse import EventSource, ServerSentEvent
from pydantic_core import from_json


class AnswerStream:
    """Iterates over the JSON objects of an answer, up to the end of the response; [DONE] gives an empty
    object.

    Raises SSEError if the response is not an event stream, ValueError if an event is not JSON, and httpx's
    errors.
    """

    def __init__(self, source: EventSource) -> None:
        self.done = False
        """True if [DONE] has arrived: the answer is complete."""
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
