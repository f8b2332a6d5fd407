"""An index of the positions at which the n-grams of a growing text end: constant memory, linear time.

A table has, for each hash of an n-gram, the two newest positions at which an n-gram with that hash ended. It
stores no tokens, so callers must compare them.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

ORDERS = (2, 5)
"""The lengths of n-grams. With two places of each n-gram, matches are as good as in a full search."""
MAX_PLACE = (1 << 31) - 1
"""The largest place that an index can hold."""

_MASK = (1 << 64) - 1
# Vector multiply-shift hashing (Dietzfelbinger, "Universal hashing via integer arithmetic without primes,
# revisited", 2018): odd 64-bit factors, the upper bits of the sum of products.
_FACTORS = (
    0x9E3779B97F4A7C15,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0xD6E8FEB86659FD93,
    0xA0761D6478BD642F,
)
_MAX_ONE_BY_ONE = 24
"""Up to this many tokens a loop is faster than numpy."""


class SuffixIndex:
    """An index of one growing text.

    A place is the position just after an n-gram's last token, so it is never 0.
    """

    def __init__(self, n_bits: int = 16) -> None:
        """Create tables with 2**n_bits entries for each order, n_bits ≥ 1.

        With n_bits = 16 they take 1 MB in all, of which only the used pages are touched.
        """
        self._shift = 64 - n_bits
        self._newest = [np.zeros(1 << n_bits, np.int32) for _ in ORDERS]
        self._previous = [np.zeros(1 << n_bits, np.int32) for _ in ORDERS]
        # Reading one element through a memoryview gives a plain int, several times faster than an array does.
        self._views = [
            (memoryview(newest), memoryview(previous))  # type: ignore[arg-type]  # numpy's stubs for 3.11
            for newest, previous in zip(self._newest, self._previous, strict=True)
        ]
        self.n_indexed = 0
        """N-grams that end at or before this position are in the tables."""

    def extend(self, tokens: Sequence[int], start: int = 0) -> None:
        """Index `tokens`, which are the text from position `start` on; tokens that were indexed before are
        skipped.

        Leaves out n-grams that end with the last token, and n-grams that begin before `start`.
        """
        first = max(self.n_indexed - start, 0)
        if len(tokens) - 1 - first > _MAX_ONE_BY_ONE:
            self._extend_at_once(tokens, start)
        else:
            self._extend_one_by_one(tokens, first, start)
        self.n_indexed = max(self.n_indexed, start + len(tokens) - 1)

    def places(self, tokens: Sequence[int]) -> list[int]:
        """Return places just after possible earlier occurrences of the last tokens of `tokens`.

        The places are distinct and in no order. Hashes may collide, so callers must compare the tokens before
        each place.
        """
        found: dict[int, None] = {}
        for (newest, previous), bucket in zip(self._views, self._buckets(tokens, len(tokens)), strict=False):
            found[newest[bucket]] = None
            found[previous[bucket]] = None
        found.pop(0, None)
        return list(found)

    def _extend_one_by_one(self, tokens: Sequence[int], first: int, start: int) -> None:
        (newest, previous), (newest_long, previous_long) = self._views
        a, b, c, d, e = _FACTORS
        shift = self._shift
        for end in range(max(first + 1, ORDERS[0]), len(tokens)):  # `_buckets` inlined, as steps wait for it
            short = tokens[end - 1] * a + tokens[end - 2] * b
            bucket = (short & _MASK) >> shift
            previous[bucket] = newest[bucket]
            newest[bucket] = start + end
            if end >= ORDERS[1]:
                long = short + tokens[end - 3] * c + tokens[end - 4] * d + tokens[end - 5] * e
                bucket = (long & _MASK) >> shift
                previous_long[bucket] = newest_long[bucket]
                newest_long[bucket] = start + end

    def _buckets(self, tokens: Sequence[int], end: int) -> list[int]:
        """Return the buckets of the n-grams that end at `end`, without orders longer than the text."""
        if end < ORDERS[0]:
            return []
        a, b, c, d, e = _FACTORS
        short = tokens[end - 1] * a + tokens[end - 2] * b
        if end < ORDERS[1]:
            return [(short & _MASK) >> self._shift]
        long = short + tokens[end - 3] * c + tokens[end - 4] * d + tokens[end - 5] * e
        return [(short & _MASK) >> self._shift, (long & _MASK) >> self._shift]

    def _extend_at_once(self, tokens: Sequence[int], start: int = 0) -> None:
        n_indexed = max(self.n_indexed - start, 0)
        first = max(0, n_indexed + 1 - ORDERS[-1])
        new = np.array(tokens[first:-1], np.uint64)
        products = [_shifted(new, i) * np.uint64(factor) for i, factor in enumerate(_FACTORS)]
        sums = list(accumulate(products))
        ends = np.arange(first + 1, len(tokens), dtype=np.int32)
        for order, newest, previous in zip(ORDERS, self._newest, self._previous, strict=True):
            fresh = (ends > n_indexed) & (ends >= order)
            buckets = (sums[order - 1] >> np.uint64(self._shift)).astype(np.int64)[fresh]
            _enter(newest, previous, buckets, start + ends[fresh])


def _shifted(tokens: NDArray[np.uint64], n: int) -> NDArray[np.uint64]:
    """Return an array with shifted[i] = tokens[i - n], and 0 for i < n."""
    return np.concatenate([np.zeros(n, np.uint64), tokens])[: len(tokens)]


def _enter(
    newest: NDArray[np.int32],
    previous: NDArray[np.int32],
    buckets: NDArray[np.int64],
    ends: NDArray[np.int32],
) -> None:
    """Enter all places at once, with the same result as entering them one after the other.

    numpy does not guarantee an order for repeated indices, hence the maximum.
    """
    previous[buckets] = newest[buckets]
    np.maximum.at(newest, buckets, ends)
    passed = newest[buckets] != ends
    np.maximum.at(previous, buckets[passed], ends[passed])
