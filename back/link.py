"""The link to the lead: one WebSocket, dialled by the back, dialled again when it breaks."""

import asyncio
import json
import math
import random
import ssl
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Protocol
from urllib.parse import urljoin

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from back.connection_log import STABLE_SECONDS, ConnectionLog
from shared.backoff import jittered_delays
from shared.bucket import Bucket
from shared.errors import ConfigError, DuoError, ProtocolError
from shared.protocol import (
    MAX_LEAD_MESSAGE_BYTES,
    Close,
    Draft,
    Extend,
    Hello,
    LeadMessage,
    Open,
    Refused,
    Tune,
    Welcome,
    parse_lead_message,
)
from shared.terminal import one_line
from shared.tls import HANGS_UP, SPEAKS_PLAIN, explain_distrust, is_plain

_HELLO_SECONDS = 10.0
_CLOSE_SECONDS = 1.0
"""A goodbye that waits behind unread news is not worth more."""
_FIRST_DELAY, _MOST_DELAY = 0.25, 10.0
_BELOW_RATE = 0.9
"""Of the drafts per second that the lead takes: they may arrive closer together than they left."""
_FINAL_STATUSES = {401, 403}
"""No key or not the right one, an address that the lead does not go by: a person has to change something."""

_REDIRECTS = {301, 302, 303, 307, 308}


class Follower(Protocol):
    """The seam to the worker."""

    def tell(self, message: Open | Extend | Close | Tune) -> None:
        """The lead said something."""

    def reset(self) -> None:
        """The connection to the lead is gone."""


class RefusedError(ConfigError):
    """The lead does not take this back; trying again would not change that."""


class LostError(DuoError):
    """The lead has been away for as long as this link waits for it."""


class _Dial(connect):
    """Follows no redirect: the key is for the lead that a person has named."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class Link:
    """Tells the worker what the lead says, and the lead what the worker drafts."""

    def __init__(
        self,
        url: str,
        hello: Hello,
        rng: random.Random,
        key: str | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        ping_seconds: float = 20.0,
        most_away_seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`key` is what the lead may ask for; `tls` says whom to trust where the URL is one of wss.

        `ping_seconds` is the time between pings, and the longest one for an answer. A lead that
        is away for `most_away_seconds` is given up. `clock` gives seconds.
        """
        self._most_away_seconds = most_away_seconds
        self._clock = clock
        self._ping_seconds = ping_seconds
        self._tls = tls
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._hello = hello
        self._rng = rng
        self._outbox: dict[str, Draft] = {}  # the newest draft of each sequence: older ones need not be sent
        self._filled = asyncio.Event()
        self._log = ConnectionLog(url)
        self._delays = self._new_delays()

    def post(self, draft: Draft) -> None:
        """Send a draft soon. Call it in the event loop's thread."""
        self._outbox[draft.sequence] = draft
        self._filled.set()

    def move(self, url: str, tls: ssl.SSLContext | None) -> None:
        """The next `run` dials another address."""
        if url != self._url:
            self._log = ConnectionLog(url)
        self._url, self._tls = url, tls

    async def run(self, follower: Follower) -> None:
        """Stay connected until cancelled; raises RefusedError, LostError."""
        self._delays = self._new_delays()
        away_since = self._clock()
        while True:
            connected = False
            try:
                async with await self._dial() as connection:
                    welcome = await self._greet(connection)
                    connected = True
                    await self._exchange(connection, welcome, follower)
            except (OSError, ConnectionClosed, InvalidHandshake, ProtocolError) as error:
                now = self._clock()
                if connected:
                    away_since = now
                    self._log.lost(self._brief(error))
                else:
                    self._log.unreachable(self._brief(error))
                if now - away_since >= self._most_away_seconds:
                    raise LostError(f"no lead at {self._url} for {now - away_since:.0f} s") from error
                await asyncio.sleep(next(self._delays))
            finally:
                follower.reset()
                self._outbox.clear()

    def _new_delays(self) -> Iterator[float]:
        return jittered_delays(_FIRST_DELAY, _MOST_DELAY, self._rng)

    def _on_stable(self) -> None:
        """After the end of this connection the delays start with the shortest again."""
        self._delays = self._new_delays()
        self._log.stable()

    async def _dial(self) -> ClientConnection:
        """Raises RefusedError for what trying again would not change."""
        try:
            return await _Dial(
                self._url,
                additional_headers=self._headers,
                ssl=self._tls,
                max_size=MAX_LEAD_MESSAGE_BYTES,
                close_timeout=_CLOSE_SECONDS,
                ping_interval=self._ping_seconds,
                ping_timeout=self._ping_seconds,
                proxy=None,
            )
        except ssl.SSLCertVerificationError as error:
            raise RefusedError(
                f"the lead at {self._url} is not trusted: {explain_distrust(error)}"
            ) from error
        except InvalidStatus as error:
            if error.response.status_code in _FINAL_STATUSES:
                raise RefusedError(f"the lead at {self._url} refuses this back: {refusal(error)}") from error
            if elsewhere := _redirected(self._url, error):
                raise RefusedError(
                    f"the lead at {self._url} redirects to {elsewhere}: use that as --lead"
                ) from error
            raise
        except (InvalidURI, ValueError) as error:  # also of a name that DNS cannot have
            raise RefusedError(f"{self._url} is no address of a lead: {self._brief(error)}") from error

    def _brief(self, error: Exception) -> str:
        if is_plain(error):
            return SPEAKS_PLAIN
        if isinstance(error.__cause__, EOFError) and self._url.startswith("ws:"):
            return HANGS_UP
        return one_line(str(error)) or type(error).__name__

    async def _greet(self, connection: ClientConnection) -> Welcome:
        await connection.send(self._hello.model_dump_json())
        async with asyncio.timeout(_HELLO_SECONDS):
            answer = parse_lead_message(await connection.recv())
        match answer:
            case Welcome():
                self._log.connected(one_line(answer.name))
                return answer
            case Refused():
                raise RefusedError(f"the lead at {self._url} refuses this back: {one_line(answer.reason)}")
            case _:
                raise ProtocolError(f"expected welcome, got {answer.type}")

    async def _exchange(self, connection: ClientConnection, welcome: Welcome, follower: Follower) -> None:
        sending = asyncio.ensure_future(self._send(connection, welcome))
        becoming_stable = asyncio.get_running_loop().call_later(STABLE_SECONDS, self._on_stable)
        try:
            async for frame in connection:
                _hand_over(parse_lead_message(frame), follower.tell)
            raise ConnectionResetError("the lead has closed the connection")
        finally:
            becoming_stable.cancel()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, connection: ClientConnection, welcome: Welcome) -> None:
        rate = _BELOW_RATE * welcome.max_drafts_per_second
        allowance = Bucket(rate, max(1.0, rate / 2), self._clock())
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._outbox:
                now = self._clock()
                if wait := allowance.wait(now):
                    # The lead would drop what is too much; here newer drafts take the place of older ones.
                    await asyncio.sleep(wait)
                    continue
                allowance.take(now)
                draft = self._outbox.pop(next(iter(self._outbox)))
                await connection.send(draft.first(welcome.max_draft).model_dump_json())


def _hand_over(message: LeadMessage, tell: Callable[[Open | Extend | Close | Tune], None]) -> None:
    if isinstance(message, Welcome | Refused):
        raise ProtocolError(f"unexpected {message.type}")
    tell(message)


def refusal(error: InvalidStatus) -> str:
    """What the lead says; a person who gave no key is told how."""
    try:
        said = one_line(str(json.loads(error.response.body)["error"]["message"]))
    except (ValueError, LookupError, TypeError):
        said = f"HTTP {error.response.status_code}"
    if error.response.status_code == HTTPStatus.UNAUTHORIZED:
        said += " (give the lead's key for backs with BACK_KEY, --key or --key-file)"
    return said


def _redirected(url: str, error: InvalidStatus) -> str | None:
    """Where the door's answer sends a back that dialled `url`, as people write it; None: nowhere."""
    location = error.response.headers.get("Location")
    if not location or error.response.status_code not in _REDIRECTS:
        return None
    door = urljoin("http" + url.removeprefix("ws"), location)
    return one_line(door.removesuffix("/").removesuffix("/v1/speculation"))
