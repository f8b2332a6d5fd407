"""Images in a text of the target: rows of embeddings where others have tokens.

A text with images is a list of ints all the same. A row of an image has its identity there, a number above
the vocabulary, so that prefixes, slots and stored texts are compared as ever. No identity is drafted, has
text, or is sent to a back.
"""

import hashlib
import sys
from array import array

from pydantic import BaseModel

_IDENTITY_BITS = 30


class ImageSpan(BaseModel, frozen=True):
    """`n_rows` rows of an image in a text, from row `start` on. They take `n_positions` positions.

    key: names what the rows are; equal keys have equal rows. width: of the grid of an image under M-RoPE,
    whose row i is at (t, y, x, z) = (p, p + i // width, p + i % width, 0), where p is the image's first
    position; 0: row i is at p + i. whole: the rows are one pass in which each sees all others, without the
    causal mask. offset: of their embeddings in the memory that all programs of a lead share
    (`ImageMemory`), in bytes: float32 [n_rows, n_embd].
    """

    start: int
    n_rows: int
    n_positions: int
    key: str
    width: int = 0
    whole: bool = False
    offset: int = 0

    @property
    def end(self) -> int:
        """The first row after it."""
        return self.start + self.n_rows


class ImageMemory(BaseModel, frozen=True):
    """Embeddings of images, which the front writes and the engine reads.

    descriptor: of anonymous memory of `n_bytes`, inherited under the same number. Its file never has a name.
    What a `Submit` refers to stays as it is until that has ended. most_whole: the most rows of an image that
    is `whole`.
    """

    descriptor: int
    n_bytes: int
    most_whole: int = 0


def row_identities(key: str, n_rows: int, n_vocab: int) -> "array[int]":
    """What stands for the rows of the image `key` in a text of a model with `n_vocab` tokens."""
    digits = array("I", hashlib.shake_128(key.encode()).digest(4 * n_rows))
    if sys.byteorder == "big":
        digits.byteswap()
    return array("i", (n_vocab + (each & ((1 << _IDENTITY_BITS) - 1)) for each in digits))
