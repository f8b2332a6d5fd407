"""Whether a slot that was cut back still holds the window that its next token looks at.

`llama_memory_seq_rm` succeeds also where cells of the window have been given away; logits would be wrong
without an error.
"""

from collections.abc import Iterable
from typing import Any

import llama_cpp

from shared.errors import WindowLostError


class WindowCheck:
    """For a cache of sliding windows that is not of full size; `n_window` tokens see each other.

    in the text of a slot    [0 ................................ n_keep)
    seen by the next token               [n_keep - n_window + 1 .. n_keep)
    must be in the cache     all of that
    """

    def __init__(self, memory: Any, n_window: int) -> None:
        """`memory` is a llama_memory_t."""
        self._memory = memory
        self._n_window = n_window
        self._lost: set[int] = set()

    def cut(self, slot: int, n_keep: int) -> None:
        """Look at a slot that was cut back to `n_keep` tokens, or got them from elsewhere."""
        first = llama_cpp.llama_memory_seq_pos_min(self._memory, slot) if n_keep else 0
        if 0 <= first <= max(0, n_keep - self._n_window + 1):
            self._lost.discard(slot)
        else:
            self._lost.add(slot)

    def require(self, slots: Iterable[int]) -> None:
        """Raise WindowLostError if `slots` have to be emptied before they are used."""
        if lost := sorted(self._lost.intersection(slots)):
            raise WindowLostError(lost)
