"""A request on its way from a client to a lead, and the beginning of its answer."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from fleet.prefixes import Blocks

RawHeaders = list[tuple[bytes, bytes]]
"""As they were sent, in any encoding."""

_HOP_BY_HOP = {
    b"connection",
    b"content-length",
    b"expect",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
}
"""RFC 9110, 7.6.1, and what the next hop's client or server sets by itself. Not Host: the lead checks it."""


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """`target`: path and query as sent. `blocks`: of its prompt. `failed`: replicas that did not answer."""

    method: str
    target: bytes
    headers: RawHeaders
    body: bytes
    blocks: Blocks = ()
    failed: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """Status, headers and first bytes of an answer. More bytes follow."""

    status: int
    headers: RawHeaders
    first: bytes


class LeadGoneError(Exception):
    """A lead does not serve, or ended before it had answered anything; another one may answer."""

    def __init__(self, replica: str) -> None:
        super().__init__(replica)
        self.replica = replica


def passed_on(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """The headers that are for the other end of the way.

    Serve's proxy leaves white space at the end of a value, with which h11 sends nothing on.
    """
    return [(name, value.strip()) for name, value in headers if name.lower() not in _HOP_BY_HOP]
