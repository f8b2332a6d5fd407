"""A limit on wrong keys, so that a short key cannot be found by trying."""

import ipaddress
from collections import OrderedDict
from collections.abc import Callable

from shared.rate_limit import Bucket

_WRONG_PER_SECOND, _WRONG_AT_ONCE = 1.0, 20.0
_MAX_PEERS, _MAX_SEEN = 2048, 4096
"""The maximum numbers of remembered addresses and keys; beyond them, the least recently used is forgotten."""


class KeyGuesses:
    """Counts wrong keys by address.

    A key that was seen from the same address before is not a guess. So a client whose right key was seen is
    always served, and a client that repeats an outdated key does not lock out its neighbors.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: returns seconds."""
        self._clock = clock
        self._wrong: OrderedDict[str, Bucket] = OrderedDict()
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()

    def seconds_to_wait(self, host: str, digest: str) -> float:
        """Return the seconds until a key with this digest may be tried from the address `host`; 0: now."""
        peer = _peer(host)
        bucket = self._wrong.get(peer)
        return bucket.wait(self._clock()) if bucket and (peer, digest) not in self._seen else 0.0

    def note(self, host: str, digest: str, *, is_right: bool) -> None:
        """Record that a key with this digest was tried from the address `host`."""
        peer = _peer(host)
        if not is_right and (peer, digest) not in self._seen:
            now = self._clock()
            bucket = self._wrong.setdefault(peer, Bucket(_WRONG_PER_SECOND, _WRONG_AT_ONCE, now))
            bucket.take(now)
            self._wrong.move_to_end(peer)
        self._seen[peer, digest] = None
        self._seen.move_to_end((peer, digest))
        if len(self._wrong) > _MAX_PEERS:
            self._wrong.popitem(last=False)
        if len(self._seen) > _MAX_SEEN:
            self._seen.popitem(last=False)


def _peer(host: str) -> str:
    """Return `host`, or for IPv6 its /64 network, because one machine can use all addresses of a network."""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network(f"{host.partition('%')[0]}/64", strict=False))
    except ValueError:
        return host
