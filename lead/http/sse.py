"""Streams answers as server-sent events or lines: an error before the first event is a status, a later one an
event.
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
"""Comments keep clients and proxies from giving up: a long prompt on a CPU can take minutes. One is sent
between this time and twice as long after the last event."""
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

JsonObject = dict[str, Any]
SseEvent = JsonObject | str
"""Text is sent unchanged."""


class Renderer(ABC):
    """An API's format of answers, streamed or whole.

    Events are server-sent ones unless a renderer says otherwise; `ping`: the bytes sent while there is no
    event.
    """

    media_type: ClassVar = "text/event-stream"
    ping: ClassVar = b": ping\n\n"

    def line(self, event: SseEvent) -> bytes:
        """Encode an event.

        If the event has a field `type`, the SSE event has that name, as in the streams of Anthropic's API and
        of Responses.
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
        """The events of an update; there may be none."""

    def finish(self) -> Iterable[SseEvent]:
        return ()

    def error(self, error: Exception) -> Iterable[SseEvent]:
        yield error_body(error)

    @abstractmethod
    def whole(self, answers: list[WholeAnswer]) -> Any:
        """The body of a response that is not streamed."""


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
    """A response that streams `updates` as events.

    Waits for the first event before it sends headers, so that an error before it is an HTTP status; after
    PING_SECONDS it begins anyway.
    """
    stream = _EventStream(updates, renderer)
    await cancel_on_disconnect(request, stream.begin())
    return stream


class _EventStream(StreamingResponse):
    """Sends comments while there is nothing else to send; an event costs neither a task nor a timer."""

    def __init__(self, updates: AsyncGenerator[AnswerUpdate], renderer: Renderer) -> None:
        self._lines = self._render(updates, renderer)
        self._first: asyncio.Future[bytes] = asyncio.ensure_future(anext(self._lines, b""))
        self._begun = False
        self._ping = renderer.ping
        super().__init__(self._lines, media_type=renderer.media_type, headers=_HEADERS)

    async def begin(self) -> None:
        """Wait for the first event, or until it is time for a comment; raises an error that comes before."""
        try:
            await asyncio.wait({self._first}, timeout=PING_SECONDS)
            if self._first.done():
                self._first.result()
        except BaseException:
            await self._close()
            raise
        self._begun = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Unlike Starlette's own, cancels the answer once, and waits for what it releases."""
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
        """The events of one update after the other, never empty; an error before the start is raised."""
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
