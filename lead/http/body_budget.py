"""What request bodies may cost together: bytes while they arrive, and turns while they are parsed."""

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator

from lead.tokenizer.fair_queue import Client, FairQueue
from shared.errors import QueueFullError


class BodyBudget:
    """Refuses bodies when all together are too large: the newest of whoever has the most (see `Client`)."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._n_bytes: Counter[Client] = Counter()
        self._bodies: dict[BodyInHand, None] = {}
        """In the order in which they began to arrive."""

    @contextlib.contextmanager
    def hold(self, client: Client) -> Iterator["BodyInHand"]:
        """A body that counts while this context lasts."""
        body = BodyInHand(self, client)
        self._bodies[body] = None
        try:
            yield body
        finally:
            self._release(body)

    def grow(self, body: "BodyInHand", n_bytes: int) -> None:
        """Count more bytes of `body`; if that makes too many, some body is refused, maybe this one."""
        if body not in self._bodies:
            return
        body.n_bytes += n_bytes
        self._n_bytes[body.client] += n_bytes
        while self._n_bytes.total() > self._most_bytes and (refused := self._newest_of_largest()):
            self._release(refused)
            refused.refuse()

    def _newest_of_largest(self) -> "BodyInHand | None":
        waiting = [body for body in self._bodies if body.can_be_refused]
        if not waiting:
            return None
        of_keys: Counter[str] = Counter()
        for client, n_bytes in self._n_bytes.items():
            of_keys[client.key] += n_bytes
        client = max(
            (body.client for body in waiting), key=lambda each: (of_keys[each.key], self._n_bytes[each])
        )
        return next(body for body in reversed(waiting) if body.client == client)

    def _release(self, body: "BodyInHand") -> None:
        if body in self._bodies:
            del self._bodies[body]
            self._n_bytes[body.client] -= body.n_bytes
            if not self._n_bytes[body.client]:
                del self._n_bytes[body.client]


class BodyInHand:
    """A body that is being received or waits for its turn."""

    def __init__(self, budget: BodyBudget, client: Client) -> None:
        self.client = client
        self.n_bytes = 0
        self._budget = budget
        self._deadline: asyncio.Timeout | None = None
        self._is_refused = False

    @property
    def can_be_refused(self) -> bool:
        """Whether its request is waiting for something."""
        return self._deadline is not None and not self._deadline.expired()

    def grow(self, n_bytes: int) -> None:
        self._budget.grow(self, n_bytes)

    def refuse(self) -> None:
        self._is_refused = True
        assert self._deadline
        self._deadline.reschedule(0)

    @contextlib.asynccontextmanager
    async def waiting(self, seconds: float | None = None) -> AsyncIterator[None]:
        """Raises QueueFullError in this context if the body is refused, TimeoutError if it lasts longer."""
        try:
            async with asyncio.timeout(seconds) as self._deadline:
                yield
        except TimeoutError:
            if not self._is_refused:
                raise
        finally:
            self._deadline = None
        if self._is_refused:
            raise QueueFullError("the requests that arrive are too large together: try again in a moment")


class Turns:
    """A lock; the next holder is a request of the client whose turn is longest ago."""

    def __init__(self) -> None:
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(sys.maxsize, sys.maxsize)
        self._is_taken = False

    @contextlib.asynccontextmanager
    async def turn(self, client: Client) -> AsyncIterator[None]:
        """Wait for a turn of `client`, which lasts as long as this context."""
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
