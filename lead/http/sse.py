"""Streams answers as server-sent events or lines.

An error before the first event becomes an HTTP status; a later error becomes an event.
"""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable
from typing import Any, ClassVar

from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from pydantic_core import to_json
from starlette.types import Message, Receive, Scope, Send

from lead.http.answers import AnswerUpdate, WholeAnswer, answer_updates, whole_answers
from lead.http.client_gone import ClientGoneError, cancel, cancel_on_disconnect
from lead.http.error_responses import error_body
from lead.http.generation_request import GenerationRequest
from lead.http.services import Services
from shared.errors import DuoError

log = logging.getLogger("lead")

PING_SECONDS = 15.0
"""The interval of comments, which keep clients and proxies from giving up: a long prompt on a CPU can take
minutes. A comment is sent after one to two intervals without an event."""
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

JsonObject = dict[str, Any]
SseEvent = JsonObject | str
"""An event: an object is sent as JSON, text unchanged."""


class Renderer(ABC):
    """An API's format of answers, streamed or whole.

    Streams are server-sent events unless a renderer defines another format. ping: bytes sent while there are
    no events.
    """

    media_type: ClassVar = "text/event-stream"
    ping: ClassVar = b": ping\n\n"

    def line(self, event: SseEvent) -> bytes:
        """Encode an event. Its field `type`, if present, is the name of the SSE event, too.

        Anthropic's API and OpenAI's Responses API have such names.
        """
        if isinstance(event, str):
            return b"data: %b\n\n" % event.encode()
        name = event.get("type")
        start = b"event: %b\n" % name.encode() if isinstance(name, str) else b""
        return b"%bdata: %b\n\n" % (start, to_json(event))

    def lines(self, events: Iterable[SseEvent]) -> bytes:
        return b"".join(map(self.line, events))

    @abstractmethod
    def render(self, update: AnswerUpdate) -> Iterable[SseEvent]:
        """Return the events of an update, perhaps none."""

    def finish(self) -> Iterable[SseEvent]:
        return ()

    def error(self, error: Exception) -> Iterable[SseEvent]:
        yield error_body(error)

    @abstractmethod
    def whole(self, answers: list[WholeAnswer]) -> Any:
        """Return the body of a response that is not streamed."""


async def respond(
    http_request: Request, request: GenerationRequest, services: Services, renderer: Renderer
) -> Response:
    """Generate the answers and send them in the format of `renderer`; raises ClientGoneError."""
    if request.streamed:
        return await event_stream(http_request, answer_updates(request, services), renderer)
    whole = renderer.whole(await cancel_on_disconnect(http_request, whole_answers(request, services)))
    return Response(to_json(whole), media_type="application/json")


async def event_stream(
    request: Request, updates: AsyncGenerator[AnswerUpdate], renderer: Renderer
) -> Response:
    """Return a response that streams `updates` as events.

    Headers are sent with the first event, so that an error before it becomes an HTTP status. If there is no
    event for PING_SECONDS, the headers are sent then.
    """
    stream = _EventStream(updates, renderer)
    await cancel_on_disconnect(request, stream.begin())
    return stream


class _EventStream(StreamingResponse):
    """A response that sends comments while there are no events, without a task or timer for each event."""

    def __init__(self, updates: AsyncGenerator[AnswerUpdate], renderer: Renderer) -> None:
        self._lines = self._render(updates, renderer)
        self._first: asyncio.Future[bytes] = asyncio.ensure_future(anext(self._lines, b""))
        self._begun = False
        self._ping = renderer.ping
        super().__init__(self._lines, media_type=renderer.media_type, headers=_HEADERS)

    async def begin(self) -> None:
        """Wait for the first event, but at most PING_SECONDS; raises an error that occurs before."""
        try:
            await asyncio.wait({self._first}, timeout=PING_SECONDS)
            if self._first.done():
                self._first.result()
        except BaseException:
            await self._close()
            raise
        self._begun = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response. If the client leaves, cancel the answer once, and wait until it has ended.

        Starlette's own method does neither.
        """
        with contextlib.suppress(ClientGoneError):
            await cancel_on_disconnect(Request(scope, receive), self.stream_response(send))

    async def stream_response(self, send: Send) -> None:
        n_sent = 0

        async def send_body(data: bytes, *, more: bool = True) -> None:
            nonlocal n_sent
            await send(_body(data, more=more))
            n_sent += 1

        async def ping() -> None:
            n_before = -1
            while True:
                await asyncio.sleep(PING_SECONDS)
                if n_sent == n_before and self._ping:
                    await send(_body(self._ping))
                n_before = n_sent

        pinging = asyncio.ensure_future(ping())
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            lines = await self._first
            while lines:
                await send_body(lines)
                lines = await anext(self._lines, b"")
            await send_body(b"", more=False)
        finally:
            await cancel(pinging)
            await self._close()

    async def _render(
        self, updates: AsyncGenerator[AnswerUpdate], renderer: Renderer
    ) -> AsyncGenerator[bytes]:
        """Yield the encoded events of each update that has some; raises an error before the first event."""
        try:
            async with contextlib.aclosing(updates):
                async for update in updates:
                    if lines := renderer.lines(renderer.render(update)):
                        yield lines
            if lines := renderer.lines(renderer.finish()):
                yield lines
        except Exception as error:
            if not self._begun:
                raise
            if not isinstance(error, DuoError):
                log.exception("an answer was interrupted by an error")
            yield renderer.lines(renderer.error(error))

    async def _close(self) -> None:
        await cancel(self._first)
        await self._lines.aclose()


def _body(data: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}
