"""Images in a text of the target: rows of embeddings in place of tokens.

A text with images is still a list of integers. Each row of an image is represented by its identity, a number
above all vocabularies, so that prefixes, slots and stored texts are compared as usual. Identities are never
drafted, have no text, and are not sent to backs.
"""

import hashlib
import sys
from array import array
from collections.abc import Sequence

from pydantic import BaseModel

_FIRST_IDENTITY = 1 << 30
"""The smallest identity: no vocabulary has so many tokens. Identities fit into 31 bits."""
_BEGINS = 1
"""The bit of an identity that is set if an image begins at this row."""


class ImageSpan(BaseModel, frozen=True):
    """An image in a text: `n_rows` rows from row `start` on, which take `n_positions` positions.

    key: identifies the contents; images with equal keys have equal rows. width: the width of the grid under
    M-RoPE; row i is then at (t, y, x, z) = (p, p + i // width, p + i % width, 0), where p is the image's
    first position. Without M-RoPE, width is 0 and row i is at p + i. whole: the rows are decoded in one pass,
    in which each row sees all others, without the causal mask. offset: the position of the embeddings in the
    shared memory (`ImageMemory`), in bytes: float32 [n_rows, n_embd].
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
        """The first row after the image."""
        return self.start + self.n_rows


class ImageMemory(BaseModel, frozen=True):
    """The shared memory with the embeddings of images, which the front writes and the engine reads.

    descriptor: the descriptor of `n_bytes` of anonymous memory, which the engine inherits under the same
    number. Embeddings that a `Submit` refers to are unchanged until the sequence has ended. max_whole: the
    maximum number of rows of an image that is `whole`.
    """

    descriptor: int
    n_bytes: int
    max_whole: int = 0


def row_identities(key: str, n_rows: int) -> "array[int]":
    """Return the identities of the rows of the image `key`; `n_rows` is at least 1."""
    digits = array("I", hashlib.shake_128(key.encode()).digest(4 * n_rows))
    if sys.byteorder == "big":
        digits.byteswap()
    identities = array("i", (_FIRST_IDENTITY | (each % _FIRST_IDENTITY & ~_BEGINS) for each in digits))
    identities[0] |= _BEGINS
    return identities


def image_start(tokens: Sequence[int], n: int) -> int:
    """Return `n`, or the beginning of the image that cutting `tokens` after the first `n` would divide."""
    while n < len(tokens) and tokens[n] >= _FIRST_IDENTITY and not tokens[n] & _BEGINS:
        n -= 1
    return n


def without_images(tokens: Sequence[int]) -> list[int]:
    """Return `tokens` without the rows of images, as backs and samplers see the text."""
    return [token for token in tokens if token < _FIRST_IDENTITY]
