"""A lock that clients get by turns."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from lead.tokenizer.fair_queue import Client, FairQueue


class FairLock:
    """A lock whose next holder is the waiting client that held it least recently."""

    def __init__(self) -> None:
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(sys.maxsize, sys.maxsize)
        self._is_taken = False

    @contextlib.asynccontextmanager
    async def hold(self, client: Client) -> AsyncIterator[None]:
        """Wait for the lock, and hold it for `client` within this context."""
        await self._take(client)
        try:
            yield
        finally:
            self._pass_on()

    async def _take(self, client: Client) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._queue.push(client, turn, 0)
        try:
            await turn
        except asyncio.CancelledError:
            self._queue.remove(client, turn)
            if turn.done() and not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._queue:
            turn = self._queue.pop()
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False
