"""How a program of the bench ends: quietly, on Ctrl-C and on SIGTERM."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable


async def until_signal(work: Awaitable[None]) -> None:
    """Await `work`; a signal cancels it."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
