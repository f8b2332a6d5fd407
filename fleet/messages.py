"""Messages between ingress and leads: a request on its way, and the beginning of its answer."""

from dataclasses import dataclass, field

from fleet.prefixes import Blocks
from shared.next_hop import RawHeaders


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
    """Status, headers and first bytes of an answer. More bytes may follow."""

    status: int
    headers: RawHeaders
    first: bytes


class LeadGoneError(Exception):
    """A lead does not serve, or ended before it had answered anything; another one may answer."""

    def __init__(self, replica: str) -> None:
        super().__init__(replica)
        self.replica = replica
