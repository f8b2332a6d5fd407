"""Connects to the lead: retries, failures that are final, and log messages about the connection."""

import logging
import ssl
from collections.abc import AsyncGenerator, Callable, Iterator
from http import HTTPStatus
from typing import Literal, cast
from urllib.parse import urljoin

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus, InvalidURI

from shared.errors import ConfigError, ProtocolError
from shared.protocol import MAX_LEAD_MESSAGE_BYTES, Hello, Refused, Welcome, parse_lead_message
from shared.terminal import error_reason, one_line
from shared.tls_failures import HANGS_UP, SPEAKS_PLAIN, explain_distrust, is_plain

log = logging.getLogger("back")

STABLE_SECONDS = 10.0
"""A connection that has lasted this long is stable."""
_MAX_UNSTABLE = 3
"""After this many successive unstable connections, a connection is logged only when it is stable."""
CLOSE_SECONDS = 1.0
"""The time limit for the closing handshake, including messages that must be read before it."""
_FINAL_STATUSES = {401, 403}
"""HTTP statuses that only a person can remedy: a wrong key, or a host name that the lead does not accept."""
_REDIRECTS = {301, 302, 303, 307, 308}


class RefusedError(ConfigError):
    """The lead rejected this back, and another attempt would be rejected, too."""


class OtherVocabularyError(RefusedError):
    """The lead's vocabulary differs from the vocabulary in this back's hello."""


class _ConnectWithoutRedirects(connect):
    """A `connect` that follows no redirects, because the key is only for the configured lead."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


def dial(
    url: str,
    *,
    key: str | None,
    tls: ssl.SSLContext | None,
    ping_seconds: float,
    process_exception: Callable[[Exception], Exception | None],
    delays: Iterator[float],
) -> AsyncGenerator[ClientConnection]:
    """Yield connections to the lead, one after the other; raises RefusedError.

    process_exception: the parameter of `websockets.connect`. delays: seconds between attempts.
    """
    try:
        connections = _ConnectWithoutRedirects(
            url,
            additional_headers={"Authorization": f"Bearer {key}"} if key else {},
            ssl=tls,
            max_size=MAX_LEAD_MESSAGE_BYTES,
            close_timeout=CLOSE_SECONDS,
            ping_interval=ping_seconds,
            ping_timeout=ping_seconds,
            proxy=None,
            process_exception=process_exception,
            reconnect_delays=lambda: (each for each in delays),
        )
    except (InvalidURI, ValueError) as error:
        raise _not_an_address(url, error) from error
    # An async generator by its implementation, which can be closed.
    return cast("AsyncGenerator[ClientConnection]", aiter(connections))


async def greet(connection: ClientConnection, url: str, hello: Hello) -> Welcome:
    """Send the hello and return the lead's welcome.

    Raises RefusedError with the lead's reason, or ProtocolError.
    """
    await connection.send(hello.model_dump_json())
    match parse_lead_message(await connection.recv()):
        case Welcome() as welcome:
            return welcome
        case Refused(reason=reason, code=code):
            kind = OtherVocabularyError if code == "vocabulary" else RefusedError
            raise kind(f"the lead at {url} refuses this back: {one_line(reason)}")
        case other:
            raise ProtocolError(f"the lead at {url} sent {other.type} instead of welcome")


def as_final(url: str, error: Exception) -> RefusedError | None:
    """Return the error to stop with if connecting to `url` again cannot succeed; None if it may."""
    match error:
        case ssl.SSLCertVerificationError():
            return RefusedError(f"the lead at {url} is not trusted: {explain_distrust(error)}")
        case InvalidStatus() if error.response.status_code in _FINAL_STATUSES:
            return RefusedError(f"the lead at {url} refuses this back: {refusal(error)}")
        case InvalidStatus() if target := _redirect_target(url, error):
            return RefusedError(f"the lead at {url} redirects to {target}. Use this address for --lead")
        case InvalidURI() | ValueError():  # DNS refuses some names with a ValueError
            return _not_an_address(url, error)
        case _:
            return None


def brief(url: str, error: Exception) -> str:
    """Return a short reason for the log: why connecting to `url` failed, or why a connection ended."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "another server answers there"
    if is_plain(error):
        return SPEAKS_PLAIN
    if isinstance(error.__cause__, EOFError) and url.startswith("ws:"):
        return HANGS_UP
    return one_line(str(error)) or type(error).__name__


def refusal(error: InvalidStatus) -> str:
    """Return the lead's reason for refusing this back; for a missing key, also how to pass a key."""
    reason = error_reason(bytes(error.response.body or b""), error.response.status_code)
    if error.response.status_code == HTTPStatus.UNAUTHORIZED:
        reason += (
            ". Set the lead's key for backs with --key-file or BACK_KEY, or join the lead with a new code "
            "(--join)"
        )
    return reason


def _not_an_address(url: str, error: Exception) -> RefusedError:
    return RefusedError(f"{url} is not the address of a lead: {brief(url, error)}")


def _redirect_target(url: str, error: InvalidStatus) -> str | None:
    """Return the address of the lead, in the form of `--lead`, to which `url` redirects; None: no
    redirect.
    """
    location = error.response.headers.get("Location")
    if not location or error.response.status_code not in _REDIRECTS:
        return None
    target = urljoin("http" + url.removeprefix("ws"), location)
    return one_line(target.removesuffix("/").removesuffix("/v1/speculation"))


class ConnectionLog:
    """Logs changes of the connection's state only; repeated failures are logged once.

    The last logged line always says whether the back is connected. The log stays short while a lead is away
    for days, or a connection keeps breaking. Uses no network and no clock.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._name = ""
        self._reported: Literal["nothing", "connected", "lost", "unreachable", "unstable"] = "nothing"
        self._n_unstable = 0

    def connected(self, name: str) -> None:
        """Record that the lead has accepted this back under `name`."""
        self._name = name
        self._n_unstable += 1
        if self._reported != "unstable":
            self._report_connected()

    def stable(self) -> None:
        """Record that the connection has lasted `STABLE_SECONDS`."""
        self._n_unstable = 0
        if self._reported == "unstable":
            self._report_connected()

    def lost(self, reason: str) -> None:
        if self._reported == "unstable":
            log.debug("lost the connection to the lead at %s (%s)", self._url, reason)
        elif self._n_unstable < _MAX_UNSTABLE:
            log.info("lost the connection to the lead at %s (%s): reconnecting", self._url, reason)
            self._reported = "lost"
        else:
            log.info(
                "the connection to the lead at %s breaks repeatedly (%s). Reconnecting silently "
                "until a connection lasts %.0f s",
                self._url,
                reason,
                STABLE_SECONDS,
            )
            self._reported = "unstable"

    def unreachable(self, reason: str) -> None:
        if self._reported in {"unreachable", "unstable"}:
            log.debug("no lead at %s (%s)", self._url, reason)
        else:
            log.info("no lead at %s (%s): trying again until a lead answers", self._url, reason)
            self._reported = "unreachable"

    def _report_connected(self) -> None:
        log.info("drafting for %s as %s", self._url, self._name)
        self._reported = "connected"
