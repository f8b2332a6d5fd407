"""Images in a text of the target: rows of embeddings where others have tokens.

A text with images is a list of ints all the same. A row of an image has its identity there, a number above
all vocabularies, so that prefixes, slots and stored texts are compared as ever. No identity is drafted, has
text, or is sent to a back.
"""

import hashlib
import sys
from array import array
from collections.abc import Sequence

from pydantic import BaseModel

_FIRST_IDENTITY = 1 << 30
"""No vocabulary has so many tokens. Identities fit into 31 bits."""
_BEGINS = 1
"""The bit of an identity that says whether an image begins there."""


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
    What a `Submit` refers to stays as it is until that has ended. max_whole: the most rows of an image that
    is `whole`.
    """

    descriptor: int
    n_bytes: int
    max_whole: int = 0


def row_identities(key: str, n_rows: int) -> "array[int]":
    """What stands for the rows of the image `key` in a text; at least one row."""
    digits = array("I", hashlib.shake_128(key.encode()).digest(4 * n_rows))
    if sys.byteorder == "big":
        digits.byteswap()
    identities = array("i", (_FIRST_IDENTITY | (each % _FIRST_IDENTITY & ~_BEGINS) for each in digits))
    identities[0] |= _BEGINS
    return identities


def image_start(tokens: Sequence[int], n: int) -> int:
    """`n`, or where the image begins that a cut of `tokens` after the first `n` would divide."""
    while n < len(tokens) and tokens[n] >= _FIRST_IDENTITY and not tokens[n] & _BEGINS:
        n -= 1
    return n


def without_images(tokens: Sequence[int]) -> list[int]:
    """The tokens of a text without the rows of its images: what backs and samplers see of it."""
    return [token for token in tokens if token < _FIRST_IDENTITY]
