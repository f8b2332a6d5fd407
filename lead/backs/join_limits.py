"""How often a peer may join as a back, and how long one that was disconnected for what it sent may not."""

from collections import OrderedDict
from dataclasses import dataclass

from shared.bucket import Bucket
from shared.errors import UnavailableError

FIRST_LOCKOUT_SECONDS, MAX_LOCKOUT_SECONDS = 10.0, 600.0
"""Doubled with each further offence, until a peer has behaved for as long as the longest one."""
_JOINS_PER_SECOND = 1.0
"""On average; each costs the lead about as much as a hundred drafts."""
_JOIN_BURST = 64
"""All backs of a site connect at once when its lead is started again."""
_MAX_PEERS = 1024
"""The most that are remembered; the one that joined least recently is forgotten."""


@dataclass(slots=True)
class _Peer:
    joins: Bucket
    n_offences: int = 0
    offended_at: float = 0.0

    @property
    def lockout_seconds(self) -> float:
        doubled = FIRST_LOCKOUT_SECONDS * 2.0 ** min(self.n_offences - 1, 16)
        return min(doubled, MAX_LOCKOUT_SECONDS) if self.n_offences else 0.0


class JoinLimits:
    """By peer: whatever name tells one sender from another. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._peers: OrderedDict[str, _Peer] = OrderedDict()

    def __len__(self) -> int:
        """The number of peers that are remembered."""
        return len(self._peers)

    def admit(self, peer: str, now: float) -> None:
        """Count an attempt to join; raises UnavailableError if this one is refused."""
        record = self._find(peer, now)
        if (seconds := record.offended_at + record.lockout_seconds - now) > 0:
            raise UnavailableError(f"disconnected for what it has sent: try again in {seconds:.0f} s")
        if not record.joins.take(now):
            raise UnavailableError("too many connections in a short time: try again in some seconds")

    def punish(self, peer: str, now: float) -> float:
        """Refuse `peer`, which was disconnected for what it sent; returns for how many seconds."""
        record = self._find(peer, now)
        if now - record.offended_at > record.lockout_seconds + MAX_LOCKOUT_SECONDS:
            record.n_offences = 0
        record.n_offences += 1
        record.offended_at = now
        return record.lockout_seconds

    def _find(self, peer: str, now: float) -> _Peer:
        record = self._peers.setdefault(peer, _Peer(Bucket(_JOINS_PER_SECOND, _JOIN_BURST, now)))
        self._peers.move_to_end(peer)
        if len(self._peers) > _MAX_PEERS:
            self._peers.popitem(last=False)
        return record
