"""Forwards requests to the process of a model, and streams its response back."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Iterator

import httpx
from fastapi import Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from lead.engine_client.answer_stats import current_request
from lead.http.client_gone import ClientGoneError, cancel_on_disconnect
from lead.http.error_responses import body_at
from lead.router.model_host import ModelHost
from lead.router.model_process import ModelProcess
from shared.errors import NotServingError, UnavailableError
from shared.next_hop import BegunAnswer, NextHop, end_to_end_headers, target_of

log = logging.getLogger("models")

_MAX_ATTEMPTS = 5
_PAUSE_SECONDS = 0.5
"""The pause before a request that a running process did not serve is sent again."""
_CONNECT_SECONDS = 10.0
_MAX_IDLE = 64
_OWN = (b"host", b"content-length", b"authorization", b"x-api-key", b"x-forwarded-for", b"x-request-id")
_OWN_OF_ANSWERS = (b"x-request-id", b"server", b"date")
_EVENTS = {"text/event-stream": b"data: %b\n\n", "application/x-ndjson": b"%b\n"}
"""The format of an error within a stream, by content type."""


class Forwarder:
    """Forwards requests to models; repeats a request if the process ends before it has answered anything."""

    def __init__(self, host: ModelHost) -> None:
        self._host = host
        self._n_running = 0
        self._next_hop = NextHop(max_idle=_MAX_IDLE, connect_seconds=_CONNECT_SECONDS)

    def __len__(self) -> int:
        """Return the number of requests that are being answered, or wait for a model."""
        return self._n_running

    def fail_all(self, reason: str) -> None:
        """Refuse requests that wait for a model. A response in progress ends with its model's process."""
        self._host.refuse_all(reason)

    async def close(self) -> None:
        """Close the connections to models; call it after the last request."""
        await self._next_hop.close()

    async def answer(
        self, request: Request, name: str, body: bytes, keep_seconds: float | None = None
    ) -> Response:
        """Return the response of the model `name`; raises UnavailableError, UnusableModelError,
        ClientGoneError.

        keep_seconds: see `ModelHost.use`.
        """
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self._counted())
            answer = await cancel_on_disconnect(
                request, self._begin(request, name, body, keep_seconds, stack)
            )
            answer.held = stack.pop_all()
            if record := current_request.get():
                record.is_forwarded = True
            return answer

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._n_running += 1
        try:
            yield
        finally:
            self._n_running -= 1

    async def _begin(
        self,
        request: Request,
        name: str,
        body: bytes,
        keep_seconds: float | None,
        held: contextlib.AsyncExitStack,
    ) -> "ForwardedAnswer":
        """Return a response whose first part has arrived; `held` releases the resources that it uses."""
        for _ in range(_MAX_ATTEMPTS):
            async with contextlib.AsyncExitStack() as attempt:
                process = await attempt.enter_async_context(self._host.use(name, keep_seconds))
                try:
                    answer = await attempt.enter_async_context(self._ask(process, request, body))
                except (httpx.TransportError, NotServingError) as error:
                    reason = str(error) or type(error).__name__
                    log.warning("%s has not answered (%s). Sending the request again", name, reason)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_PAUSE_SECONDS):
                            await asyncio.shield(process.ended)
                else:
                    held.push_async_callback(attempt.pop_all().aclose)
                    return ForwardedAnswer(answer)
        raise UnavailableError(f"{name} ended {_MAX_ATTEMPTS} times before it answered this request")

    def _ask(
        self, process: ModelProcess, request: Request, body: bytes
    ) -> contextlib.AbstractAsyncContextManager[BegunAnswer]:
        own = [(name.encode(), value.encode()) for name, value in process.headers_for(request)]
        headers = [*end_to_end_headers(request.headers.raw, *_OWN), *own]
        return self._next_hop.answer(request.method, process.url, target_of(request.scope), headers, body)


class ForwardedAnswer(Response):
    """A response that sends the first part, then the others as they arrive. Closes `held` at its end."""

    def __init__(self, answer: BegunAnswer) -> None:
        self.status_code = answer.status
        self.background = None
        self.raw_headers = end_to_end_headers(answer.headers.raw, *_OWN_OF_ANSWERS)
        self.held = contextlib.AsyncExitStack()
        self._first = answer.first
        self._parts = answer.rest
        self._event = _EVENTS.get(answer.headers.get("content-type", "").partition(";")[0])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response; stop if the client leaves, which also stops the model."""
        async with self.held:
            with contextlib.suppress(ClientGoneError):
                await cancel_on_disconnect(Request(scope, receive), self._send(scope, send))

    async def _send(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self._first, "more_body": self._parts is not None})
        if self._parts is None:
            return
        rest = b""
        try:
            async for part in self._parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        except httpx.TransportError as error:
            gone = UnavailableError("the model's process ended while it answered")
            if self._event is None:  # the client sees that it is cut off
                raise gone from error
            rest = self._event % json.dumps(body_at(scope["path"], gone)).encode()
        await send({"type": "http.response.body", "body": rest, "more_body": False})
