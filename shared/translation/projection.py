"""Maps each draft token to a target token: the first target token of its bytes.

Each draft token counts for one target token, so a projected distribution loses no probability. A distribution
over the tokens that both vocabularies have would lose some (TLI, arXiv 2502.05202).
"""

from bisect import bisect_right
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from shared.translation.byte_vocabulary import ByteVocabulary

NONE = -1
"""Stands for no target token: the draft token has no text, or no target token begins its text."""

_N_REMEMBERED = 1 << 17


class Projection:
    """Maps bytes to their first target token."""

    def __init__(
        self, draft: ByteVocabulary, target: ByteVocabulary, whole: NDArray[np.int32] | None = None
    ) -> None:
        """whole: the attribute `whole` if it is already known; None: compute it."""
        self.draft = draft
        self.target = target
        self._first: OrderedDict[bytes, int] = OrderedDict()
        if whole is None:
            whole = np.array([self._of_piece(piece) for piece in draft.pieces], np.int32)
        self.whole: NDArray[np.int32] = whole
        """The first target token of each draft token's bytes."""
        self._only_target = sorted(
            piece for piece in target.pieces if piece and draft.token_of(piece) is None
        )

    def first(self, data: bytes) -> int:
        """Return the first target token of `data`, or NONE."""
        found = self._first.get(data)
        if found is None:
            found = self._first[data] = self._of_piece(data)
            if len(self._first) > _N_REMEMBERED:
                self._first.popitem(last=False)
        return found

    def has_longer(self, data: bytes, *, only_target: bool) -> bool:
        """Return whether a longer target token begins with `data`. only_target: ignore target tokens that are
        also draft tokens.
        """
        if not only_target:
            return self.target.has_longer(data)
        place = bisect_right(self._only_target, data)
        return place < len(self._only_target) and self._only_target[place].startswith(data)

    @property
    def share_exact(self) -> float:
        """The share of the draft tokens that have a target token with the same bytes."""
        n_exact = sum(self.target.token_of(piece) is not None for piece in self.draft.pieces)
        return n_exact / len(self.draft)

    def _of_piece(self, piece: bytes) -> int:
        """Return the target token for a draft token's bytes.

        The bytes of most draft tokens are a target token, too, which is looked up first, because asking the
        tokenizer takes 20 us.
        """
        if not piece:
            return NONE
        token = self.target.token_of(piece)
        if token is None:
            token = self.target.first(piece)
        return NONE if token is None else token
