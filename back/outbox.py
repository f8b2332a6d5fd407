"""Drafts on their way to the lead."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from shared.pace import Bucket
from shared.protocol import Draft, Welcome

_RATE_MARGIN = 0.9
"""Part of the lead's rate limit that is used: drafts may arrive closer together than they were sent."""


class Outbox:
    """Holds the newest draft of each sequence until it is sent; an older one is replaced."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Belongs to the running event loop; `clock` gives seconds."""
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._drafts: dict[str, Draft] = {}
        self._not_empty = asyncio.Event()

    def post(self, draft: Draft) -> None:
        """Send a draft soon. May be called in any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended and the drafting thread has not
            self._loop.call_soon_threadsafe(self._put, draft)

    def clear(self) -> None:
        """Drop what has not been sent."""
        self._drafts.clear()

    async def send_all(self, send: Callable[[str], Awaitable[None]], limits: Welcome) -> None:
        """Send drafts as they come, within the lead's limits, until cancelled."""
        rate = _RATE_MARGIN * limits.max_drafts_per_second
        bucket = Bucket(rate, max(1.0, rate / 2), self._clock())
        while True:
            await self._not_empty.wait()
            self._not_empty.clear()
            while self._drafts:
                now = self._clock()
                if wait := bucket.wait(now):
                    # The lead would drop what exceeds its limit; meanwhile newer drafts replace older ones.
                    await asyncio.sleep(wait)
                    continue
                bucket.take(now)
                draft = self._drafts.pop(next(iter(self._drafts)))
                await send(draft.first(limits.max_draft).model_dump_json())

    def _put(self, draft: Draft) -> None:
        self._drafts[draft.sequence] = draft
        self._not_empty.set()
