"""Cancels work for a client that leaves before the work is done."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request, WebSocket, WebSocketDisconnect

T = TypeVar("T")

_MAX_REASON_BYTES = 123  # RFC 6455: control frames have at most 125 bytes, two of them the code


class ClientGoneError(Exception):
    """The client has closed its connection."""


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`. If the client leaves first, cancel `work` and raise ClientGoneError."""
    task, has_left, has_ended = asyncio.current_task(), False, False
    assert task

    def leave(leaving: asyncio.Future[None]) -> None:
        nonlocal has_left
        # The end of the event loop cancels `leaving`, too. A second cancellation would interrupt clean-up.
        if not (has_ended or leaving.cancelled()):
            has_left = True
            task.cancel()

    leaving = asyncio.ensure_future(_disconnect(request))
    leaving.add_done_callback(leave)
    try:
        return await work
    except asyncio.CancelledError:
        if has_left and task.cancelling() == 1:  # else somebody else cancels this, too
            raise ClientGoneError from None
        raise
    finally:
        has_ended = True
        leaving.cancel()
        if has_left:
            task.uncancel()


async def cancel(*tasks: asyncio.Future[Any]) -> None:
    """Cancel the tasks and wait until they have ended, even if this call itself is cancelled meanwhile."""
    for task in tasks:
        task.cancel()
    ending = asyncio.gather(*tasks, return_exceptions=True)
    try:
        await asyncio.shield(ending)  # a second cancellation would interrupt what the tasks clean up
    finally:
        await ending


async def close_socket(socket: WebSocket, code: int, reason: str = "") -> None:
    """Close a WebSocket, unless the client has closed it already."""
    cut = reason.encode("utf-8", "replace")[:_MAX_REASON_BYTES].decode("utf-8", "ignore")
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        await socket.close(code, cut)


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
