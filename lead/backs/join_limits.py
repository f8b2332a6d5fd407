"""Limits on joining as a back: attempts of a peer, and its lockout after a forced disconnection."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from shared.errors import UnavailableError
from shared.rate_limit import Bucket

FIRST_LOCKOUT_SECONDS, MAX_LOCKOUT_SECONDS = 10.0, 600.0
"""The first lockout, doubled with each further offense, and the longest lockout."""
_PEER_OFFENSES, _PEER_MEMORY_SECONDS = 8, 300.0
"""A peer's offenses before all its names are locked out, and the seconds after which they are forgotten."""
_JOINS_PER_SECOND = 1.0
"""The average rate limit of joins; a join costs the lead as much as about a hundred drafts."""
_JOIN_BURST = 64
"""The maximum number of joins in a burst: all backs of a site connect when its lead is restarted."""
_IMPATIENCE = 8
"""An attempt under a locked name counts as this many attempts, so that its peer must wait soon."""
REFUSAL_SECONDS, MAX_HELD_REFUSALS = 1.0, 64
"""The delay of a refusal in seconds, which slows down peers that try again at once; and the maximum number of
delayed refusals, as each takes a descriptor.
"""
_MAX_RECORDS = 2048
"""The maximum number of peers and names to remember; the least recently used is forgotten."""


@dataclass(slots=True)
class _JoinRecord:
    """The attempts and offenses of a peer, or of one name that a peer has used.

    n_free: the number of offenses without a consequence. memory_seconds: how long after the end of the last
    lockout all offenses are forgotten.
    """

    joins: Bucket
    n_free: int = 0
    memory_seconds: float = MAX_LOCKOUT_SECONDS
    n_offenses: int = 0
    offended_at: float = 0.0

    def count_offense(self, now: float) -> float:
        """Count an offense; return the seconds of the lockout that follows."""
        if now - self.offended_at > self.lockout_seconds + self.memory_seconds:
            self.n_offenses = 0
        self.n_offenses += 1
        self.offended_at = now
        return self.lockout_seconds

    def check(self, now: float) -> None:
        if (seconds := self.offended_at + self.lockout_seconds - now) > 0:
            raise UnavailableError(
                f"this back was disconnected because it broke a limit: try again in {seconds:.0f} s"
            )

    @property
    def lockout_seconds(self) -> float:
        n = self.n_offenses - self.n_free
        return min(FIRST_LOCKOUT_SECONDS * 2.0 ** min(n - 1, 16), MAX_LOCKOUT_SECONDS) if n > 0 else 0.0


@dataclass(slots=True)
class JoinLimits:
    """Counts attempts to join by peer. Times are in seconds of one clock.

    A peer is a sender, identified by anything except a name, which anyone can make up.
    """

    _records: OrderedDict[tuple[str, ...], _JoinRecord] = field(default_factory=OrderedDict)
    _n_held: int = 0

    def __len__(self) -> int:
        """Return the number of peers and names that are remembered."""
        return len(self._records)

    def admit(self, peer: str, now: float) -> None:
        """Count an attempt to join; raises UnavailableError if the peer must wait."""
        record = self._find((peer,), now)
        record.check(now)
        if not record.joins.take(now):
            raise UnavailableError("too many connections in a short time. Try again in a few seconds")

    def admit_name(self, peer: str, name: str, now: float) -> None:
        """Check the name of an admitted peer; raises UnavailableError if a back of this name must wait."""
        try:
            self._find((peer, name), now).check(now)
        except UnavailableError:
            self._find((peer,), now).joins.drain(now, _IMPATIENCE)
            raise

    def lock_out(self, peer: str, name: str, now: float) -> float:
        """Record an offense of the peer and its back `name`, which was disconnected for its messages. Returns
        the seconds for which this name is locked out.
        """
        self._find((peer,), now).count_offense(now)
        return self._find((peer, name), now).count_offense(now)

    @contextmanager
    def held_refusal(self) -> Iterator[float]:
        """Yield the seconds to delay a refusal within this context; 0 if too many are delayed already."""
        seconds = REFUSAL_SECONDS if self._n_held < MAX_HELD_REFUSALS else 0.0
        self._n_held += 1
        try:
            yield seconds
        finally:
            self._n_held -= 1

    def _find(self, key: tuple[str, ...], now: float) -> _JoinRecord:
        if key not in self._records:
            limits = (_PEER_OFFENSES, _PEER_MEMORY_SECONDS) if len(key) == 1 else ()
            self._records[key] = _JoinRecord(Bucket(_JOINS_PER_SECOND, _JOIN_BURST, now), *limits)
        self._records.move_to_end(key)
        if len(self._records) > _MAX_RECORDS:
            self._records.popitem(last=False)
        return self._records[key]
