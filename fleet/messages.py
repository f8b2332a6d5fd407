"""Messages between ingress and leads: a forwarded request, and the head of its answer."""

from dataclasses import dataclass, field

from fleet.prefixes import Blocks
from shared.next_hop import RawHeaders


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request as received. `target`: path and query. `blocks`: hashes of its prompt (`blocks_of`).

    `failed`: replicas that did not answer.
    """

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
    """The lead does not serve, or ended before it had answered anything; another lead may answer."""

    def __init__(self, replica: str) -> None:
        super().__init__(replica)
        self.replica = replica
