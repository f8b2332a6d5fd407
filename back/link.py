"""The link to the lead: a WebSocket that the back opens, and opens again when it breaks."""

import asyncio
import contextlib
import math
import random
import ssl
import time
from collections.abc import Awaitable, Callable

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from back.dial import STABLE_SECONDS, ConnectionLog, as_final, brief, dial, greet
from back.worker import DraftWorker
from shared.drafting.drafter import DrafterMessage
from shared.errors import DuoError, ProtocolError
from shared.protocol import Draft, Hello, LeadMessage, Refused, VocabularyId, Welcome, parse_lead_message
from shared.rate_limit import Backoff, Bucket
from shared.terminal import one_line

_RATE_MARGIN = 0.9
"""The share of the lead's rate limit to use, as drafts may arrive closer together than they were sent."""


class Outbox:
    """Holds the newest draft of each sequence until it is sent. A newer draft replaces an older one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Create it in the running event loop; `clock` returns seconds."""
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._drafts: dict[str, Draft] = {}
        self._not_empty = asyncio.Event()

    def post(self, draft: Draft) -> None:
        """Queue a draft to be sent soon. Any thread may call it."""
        with contextlib.suppress(RuntimeError):  # the loop has ended and the drafting thread has not
            self._loop.call_soon_threadsafe(self._put, draft)

    async def send_all(self, send: Callable[[str], Awaitable[None]], limits: Welcome) -> None:
        """Send drafts as they are posted, within the lead's limits, until cancelled.

        Drafts left from an earlier connection are dropped.
        """
        self._drafts.clear()
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
                cut = draft.first(limits.max_draft)
                await send(cut.model_dump_json(exclude_none=True, exclude={"source", "received_at"}))

    def _put(self, draft: Draft) -> None:
        self._drafts[draft.sequence] = draft
        self._not_empty.set()


_HELLO_SECONDS = 10.0
_MAX_UNREAD, _PAUSE_SECONDS = 256, 0.005
"""Above this number of unread messages, reading from the lead pauses for these seconds, to bound memory."""
_FIRST_DELAY, _MAX_DELAY = 0.25, 10.0
_TRANSIENT = (OSError, ConnectionClosed, InvalidHandshake, ProtocolError)


class LostError(DuoError):
    """The lead has been unreachable for longer than this link waits."""


class LeadLink:
    """The connection to one lead: passes its messages to the worker, and the drafts in `outbox` to
    the lead.
    """

    def __init__(
        self,
        url: str,
        hello: Hello,
        rng: random.Random,
        key: str | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        ping_seconds: float = 20.0,
        max_absence_seconds: float = math.inf,
        survives_distrust: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """key: the lead's key for backs. tls: verifies the lead at a wss URL.

        `ping_seconds` is the interval between pings, and the time allowed for each reply. A lead that
        is unreachable for `max_absence_seconds` is given up. `survives_distrust`: try again if the
        server's certificate is not trusted, because the lead may have moved. `rng` is for the jitter of
        the delays between attempts; `clock` gives seconds.
        """
        self.outbox = Outbox(clock)
        self._url = url
        self._hello = hello
        self._key = key
        self.tls = tls
        self._ping_seconds = ping_seconds
        self._max_absence_seconds = max_absence_seconds
        self._survives_distrust = survives_distrust
        self._clock = clock
        self._last_connected = clock()
        self._delays = Backoff(_FIRST_DELAY, _MAX_DELAY, rng)
        self._log = ConnectionLog(url)

    @property
    def lead(self) -> str:
        """The lead's URL, in the form of `--lead`."""
        return "http" + self._url.removeprefix("ws").removesuffix("/v1/speculation")

    def set_vocabulary(self, vocabulary: VocabularyId) -> None:
        """Set the vocabulary for the next hello, which keeps the draft model's name."""
        named = vocabulary.model_copy(update={"model": self._hello.vocabulary.model})
        self._hello = self._hello.model_copy(update={"vocabulary": named})

    def set_lead(self, url: str, tls: ssl.SSLContext | None) -> None:
        """Set the address to which the next `run` connects."""
        if url != self._url:
            self._log = ConnectionLog(url)
        self._url, self.tls = url, tls

    async def run(self, worker: DraftWorker, lead: int = 0) -> None:
        """Stay connected until cancelled; raises RefusedError, LostError. lead: the lead's number for
        `worker`.
        """
        self._last_connected = self._clock()
        self._delays.reset()
        connections = dial(
            self._url,
            key=self._key,
            tls=self.tls,
            ping_seconds=self._ping_seconds,
            process_exception=self._process_exception,
            delays=self._delays,
        )
        async with contextlib.aclosing(connections):
            async for connection in connections:
                try:
                    async with asyncio.timeout(_HELLO_SECONDS):
                        welcome = await greet(connection, self._url, self._hello)
                except _TRANSIENT as error:
                    if lost := self._on_unreachable(error):
                        raise lost from error
                else:
                    await self._stay(connection, welcome, worker, lead)
                await connection.close()
                # The iterator has no delay after a handshake, which a lead that is loading completes, too.
                await asyncio.sleep(next(self._delays))

    def _process_exception(self, error: Exception) -> Exception | None:
        """Return the exception to raise after a failed attempt to connect; None: try again."""
        is_another = self._survives_distrust and isinstance(error, ssl.SSLCertVerificationError)
        if not is_another and (final := as_final(self._url, error)):
            return final
        return self._on_unreachable(error) if isinstance(error, _TRANSIENT) else error

    def _on_unreachable(self, error: Exception) -> LostError | None:
        self._log.unreachable(brief(self._url, error))
        absence = self._clock() - self._last_connected
        if absence < self._max_absence_seconds:
            return None
        return LostError(f"no lead at {self._url} for {absence:.0f} s")

    async def _stay(
        self, connection: ClientConnection, welcome: Welcome, worker: DraftWorker, lead: int
    ) -> None:
        """Exchange messages until the connection ends."""
        self._log.connected(one_line(welcome.name))
        sending = asyncio.ensure_future(self.outbox.send_all(connection.send, welcome))
        becoming_stable = asyncio.get_running_loop().call_later(STABLE_SECONDS, self._on_stable)
        try:
            async for frame in connection:
                worker.on_message(lead, _news(parse_lead_message(frame)))
                while worker.n_unread > _MAX_UNREAD:  # noqa: ASYNC110 - the worker is a thread without a loop
                    await asyncio.sleep(_PAUSE_SECONDS)
            self._log.lost("the lead has closed the connection")
        except _TRANSIENT as error:
            self._log.lost(brief(self._url, error))
        finally:
            self._last_connected = self._clock()
            becoming_stable.cancel()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            worker.on_message(lead, None)

    def _on_stable(self) -> None:
        """Reset the delays between attempts, and log that the connection is stable."""
        self._delays.reset()
        self._log.stable()


def _news(message: LeadMessage) -> DrafterMessage:
    if isinstance(message, Welcome | Refused):
        raise ProtocolError(f"unexpected {message.type}")
    return message
