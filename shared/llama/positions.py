"""Maps the rows of a slot to llama.cpp's positions. Imports no native library."""

import struct
from collections.abc import Callable
from typing import NamedTuple

from shared.image_span import ImageSpan
from shared.llama.memory_traits import SlotPart

PositionOf = Callable[[int, int], int]
"""The type of `Positions.position_of`."""
_FORMAT = "<iii"


class _Jump(NamedTuple):
    """The rows `start` to `end`, which take `n_positions` positions, fewer than rows."""

    start: int
    end: int
    n_positions: int


class Positions(SlotPart):
    """The positions of rows. The rows of a slot are its tokens and its images' rows, counted from 0.

    Row i is at position i, until an image under M-RoPE takes fewer positions than it has rows.

        tokens   0 1 2          11 12           rows       13 tokens, 8 of them the rows of an image
        image          3 .. 10                             that takes 2 positions
        position 0 1 2 3 .. 3   5  6            of rows

    `position_of` returns the image's first position for each row of such an image, so no cut divides the
    image. No jump is recorded for a slot whose text has no such image.
    """

    def __init__(self, n_slots: int) -> None:
        self._jumps: list[list[_Jump]] = [[] for _ in range(n_slots)]

    def position_of(self, slot: int, row: int) -> int:
        """Return the position of a row that `slot` has, or of the next row."""
        position = row
        for start, end, n_positions in self._jumps[slot]:
            if row < end:
                return position if row <= start else position - (row - start)
            position -= end - start - n_positions
        return position

    def has_jumps(self, slot: int) -> bool:
        """Return whether rows and positions of `slot` differ."""
        return bool(self._jumps[slot])

    def add_image(self, slot: int, image: ImageSpan) -> None:
        """Record an image whose first rows were added to `slot`; its other rows follow."""
        if image.n_positions < image.n_rows:
            self._jumps[slot].append(_Jump(image.start, image.end, image.n_positions))

    def trimmed(self, slot: int, n_keep: int) -> None:
        if self._jumps[slot]:
            self._jumps[slot] = [jump for jump in self._jumps[slot] if jump.start < n_keep]

    def copied(self, source: int, slot: int, n_keep: int) -> None:
        self._jumps[slot] = [jump for jump in self._jumps[source] if jump.start < n_keep]

    def loaded(self, slot: int, key: int, n_keep: int) -> None:  # noqa: ARG002 - `unpack` had all that was stored
        self.trimmed(slot, n_keep)

    def packed(self, slot: int, start: int, end: int) -> bytes:
        """Return the bytes to store for the images that begin in the rows `start` to `end`; usually empty."""
        jumps = [jump for jump in self._jumps[slot] if start <= jump.start < end]
        return b"".join(struct.pack(_FORMAT, *jump) for jump in jumps)

    def unpack(self, slot: int, packed: bytes) -> None:
        """Add the images in `packed` after the rows of `slot`; raises ValueError if the bytes are invalid."""
        try:
            self._jumps[slot] += [_Jump(*jump) for jump in struct.iter_unpack(_FORMAT, packed)]
        except struct.error as error:
            raise ValueError(f"{len(packed)} bytes are not positions") from error
