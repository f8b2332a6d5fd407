"""Stores the recent texts of each owner, in a fixed amount of memory and up to an age.

All texts are in one ring, as one long text in which the tokens of different owners never compare equal
(`mark`). So the matches of an owner, and the tokens that follow them, are always the owner's own.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from lead.engine.drafters.suffix_index import MAX_PLACE, ORDERS, SuffixIndex

_NOTHING = 0
"""The value after each text, and in place of forgotten texts; no marked token has it."""
_OWNER_SHIFT = 32
"""Token ids and numbers of owners have at most 31 bits."""
_TOKEN_BYTES = 8
_BUCKET_BYTES = 2 * 4 * len(ORDERS)
_BLOCK = 64
"""The number of tokens in a block. Beginnings of texts are compared by blocks, which are longer than any
match."""


class _SeenText(NamedTuple):
    """A text that ends before position `end`, and ended at the time `ended_at`."""

    end: int
    ended_at: float


class SeenTexts(Sequence[int]):
    """The marked tokens (see `mark`) of all texts, of which only the newest are kept.

    Positions are counted from the first token ever stored.
    """

    def __init__(self, n_bytes: int, max_age: float, clock: Callable[[], float]) -> None:
        """n_bytes: the maximum number of bytes for tokens and their index; at least 1 KB are used. max_age:
        the age, in seconds since its end, at which a text is forgotten. clock: returns seconds.
        """
        self._n_bits = (n_bytes // (_TOKEN_BYTES + _BUCKET_BYTES)).bit_length() - 1
        n_tokens = (n_bytes - (_BUCKET_BYTES << self._n_bits)) // _TOKEN_BYTES
        self._n_tokens = n_tokens
        self._max_age = max_age
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._ring = np.zeros(self._n_tokens, np.int64)  # takes memory as it fills
        # Reading through a memoryview gives plain ints, several times faster than an array does.
        self._view = memoryview(self._ring)  # type: ignore[arg-type]  # numpy's stubs for 3.11
        self._index = SuffixIndex(self._n_bits)
        self._texts = deque[_SeenText]()
        self._blocks: dict[int, int] = {}  # positions, by the hash of a text's beginning
        self._start = self._end = 0  # what is kept

    def __len__(self) -> int:
        """Return the position after the newest token."""
        return self._end

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> list[int]: ...
    def __getitem__(self, at: int | slice) -> int | list[int]:
        """Return the tokens at non-negative positions; slices omit tokens that are no longer kept."""
        if isinstance(at, slice):
            return self._read(max(at.start, self._start), min(at.stop, self._end))
        return self._view[at % len(self._view)] if self._start <= at < self._end else _NOTHING

    def places(self, marked: Sequence[int]) -> list[int]:
        """Return positions just after possible occurrences of the last tokens of `marked`; callers must
        compare.
        """
        self.forget_old()
        return [place for place in self._index.places(marked) if place > self._start]

    def add(self, owner: int, tokens: Sequence[int]) -> None:
        """Store an ended text of `owner`, except a beginning that another text of the owner has as well."""
        self.forget_old()
        beginnings = _beginnings(owner, tokens)
        n_known = self._n_known(beginnings)
        if len(tokens) - n_known * _BLOCK < ORDERS[0]:
            return
        first = max((n_known - 1) * _BLOCK, len(tokens) + 1 - len(self._ring), 0)
        if self._end + len(tokens) >= MAX_PLACE:
            self._begin()
        start = self._end - first  # of the text, as if it were kept from its first token on
        self._append(mark(owner, tokens[first:]))
        for i in range(n_known, len(beginnings)):
            self._blocks.pop(beginnings[i], None)
            self._blocks[beginnings[i]] = start + i * _BLOCK
        while len(self._blocks) > len(self._ring) // _BLOCK:
            self._blocks.pop(next(iter(self._blocks)))

    def run_due(self, _now: float, *, idle: bool) -> float:
        """Forget texts that have reached their age (`lead.engine.loop.Chore`)."""
        del idle
        self.forget_old()
        return 0.0

    def seconds_until_due(self, _now: float) -> float | None:
        """Return the seconds until the next text reaches its age; None: there is none."""
        return self.forget_old()

    def forget_old(self) -> float | None:
        """Erase texts that have reached their age; return the seconds until the next text does; None: no
        text.
        """
        oldest = self._clock() - self._max_age
        while self._texts and self._texts[0].ended_at <= oldest:
            end = self._texts.popleft().end
            self._write(self._start, np.full(end - self._start, _NOTHING))
            self._start = end
        return self._texts[0].ended_at - oldest if self._texts else None

    def _n_known(self, beginnings: Sequence[int]) -> int:
        """Return how many first blocks are also in another text, except blocks about to be overwritten."""
        oldest = max(self._start, self._end - len(self._ring) // 2)
        for n, beginning in enumerate(beginnings):
            if self._blocks.get(beginning, -1) < oldest:
                return n
        return len(beginnings)

    def _append(self, marked: list[int]) -> None:
        self._index.extend(marked, self._end)
        self._write(self._end, [*marked, _NOTHING])
        self._end += len(marked) + 1
        self._start = max(self._start, self._end - len(self._ring))
        self._texts.append(_SeenText(self._end, self._clock()))
        while self._texts[0].end <= self._start:
            self._texts.popleft()

    def _write(self, start: int, values: Sequence[int] | NDArray[np.int64]) -> None:
        first = start % len(self._ring)
        n = min(len(values), len(self._ring) - first)
        self._ring[first : first + n] = values[:n]
        self._ring[: len(values) - n] = values[n:]

    def _read(self, start: int, stop: int) -> list[int]:
        if start >= stop:
            return []
        first, last = start % len(self._view), stop % len(self._view)
        if first < last:
            return self._view[first:last].tolist()
        return self._view[first:].tolist() + self._view[:last].tolist()


def mark(owner: int, tokens: Sequence[int]) -> list[int]:
    """Return the tokens with the mark of `owner`; different owners have no marked token in common."""
    base = (owner + 1) << _OWNER_SHIFT
    return [base + token for token in tokens]


def unmark(owner: int, marked: Sequence[int]) -> list[int]:
    """Return the tokens without marks, up to the first token that is not `owner`'s."""
    base = (owner + 1) << _OWNER_SHIFT
    return [each - base for each in takewhile(lambda each: each >> _OWNER_SHIFT == owner + 1, marked)]


def _beginnings(owner: int, tokens: Sequence[int]) -> list[int]:
    """Return, for each whole block of `tokens`, a hash of the block and all tokens before it."""
    blocks = (tuple(tokens[at : at + _BLOCK]) for at in range(0, len(tokens) - _BLOCK + 1, _BLOCK))
    return list(accumulate(blocks, lambda before, block: hash((before, block)), initial=owner))[1:]
