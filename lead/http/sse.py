"""Server-sent events for answers: the first error is an HTTP status, a later one is an event."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from pydantic_core import to_json
from starlette.types import Message, Receive, Scope, Send

from lead.http.errors import error_body
from shared.errors import DuoError

log = logging.getLogger("lead")

PING_SECONDS = 15.0
"""Comments keep clients and proxies patient: a long prompt on a CPU can take minutes. Between this time and
twice as long after the last event there is one."""
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

T = TypeVar("T")
Events = AsyncIterator[dict[str, Any]]
ToEvent = Callable[[Exception], dict[str, Any]]


class ClientGoneError(Exception):
    """The client has closed its connection."""


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled if the client leaves first (ClientGoneError)."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        return working.result()
    finally:
        await _cancel(working, leaving)


async def event_stream(
    request: Request, events: Events, *, done: bool = True, error: ToEvent = error_body
) -> Response:
    """Answer with `events`, each a JSON object, and `[DONE]` unless `done` is False.

    `error` makes the event of an error that comes later. Waits for the first event before it sends headers,
    so that an error up to there is an HTTP status; after PING_SECONDS it begins anyway.
    """
    first = asyncio.ensure_future(_next(events))
    try:
        await unless_gone(request, _finished(first))
    except BaseException:
        await _cancel(first)
        await _close(events)
        raise
    if first.done() and first.exception():
        await _close(events)
        first.result()
    return _EventStream(
        _lines(first, events, error, done=done), media_type="text/event-stream", headers=_HEADERS
    )


class _EventStream(StreamingResponse):
    """Sends comments while there is nothing else to send; an event costs neither a task nor a timer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Unlike Starlette's own, cancels the answer once: what it holds is released in peace."""
        with contextlib.suppress(ClientGoneError):
            await unless_gone(Request(scope, receive), self.stream_response(send))

    async def stream_response(self, send: Send) -> None:
        n_sent = 0

        async def counting(message: Message) -> None:
            nonlocal n_sent
            await send(message)
            n_sent += 1

        async def ping() -> None:
            n_before = 0
            while True:
                await asyncio.sleep(PING_SECONDS)
                if n_sent and n_sent == n_before:
                    await send({"type": "http.response.body", "body": b": ping\n\n", "more_body": True})
                n_before = n_sent

        pinging = asyncio.ensure_future(ping())
        try:
            await super().stream_response(counting)
        finally:
            await _cancel(pinging)


async def _lines(
    first: asyncio.Future[dict[str, Any] | None], events: Events, to_event: ToEvent, *, done: bool
) -> AsyncIterator[bytes]:
    try:
        event = await first
        while event is not None:
            yield _line(event)
            event = await _next(events)
    except DuoError as error:
        yield _line(to_event(error))
        return
    except Exception as error:
        log.exception("an answer broke off")
        yield _line(to_event(error))
        return
    finally:
        await _cancel(first)
        await _close(events)
    if done:
        yield b"data: [DONE]\n\n"


async def _next(events: Events) -> dict[str, Any] | None:
    return await anext(events, None)


async def _finished(first: asyncio.Future[Any]) -> None:
    await asyncio.wait({first}, timeout=PING_SECONDS)


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _close(events: Events) -> None:
    close: Awaitable[None] | None = getattr(events, "aclose", lambda: None)()
    if close is not None:
        with contextlib.suppress(DuoError):
            await close


def _line(event: dict[str, Any]) -> bytes:
    """An event with a type is also named by it, as in the streams of Anthropic's API and of Responses."""
    name = event.get("type")
    start = b"event: %b\n" % name.encode() if isinstance(name, str) else b""
    return b"%bdata: %b\n\n" % (start, to_json(event))
