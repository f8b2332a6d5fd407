"""Keeps the cells of a sliding-window cache that later tokens may need again.

`find_slot` (llama-kv-cache.cpp) gives a cell to another token as soon as the sequence that owns it has moved
on by more than its window, also in a cache of full size (`swa_full`). That is right as long as a sequence
only grows. Cut back or shared, it needs those cells again, and another slot may have overwritten them.
A cell with two owners is never given away. So each slot has a second sequence, which is never decoded and
which shares the slot's cells before they leave the window.
"""

from typing import Any

import llama_cpp


class WindowGuard:
    """Second owners for the cells of `n_slots` slots of one pool; `n_window` tokens see each other.

    Slot i is guarded by sequence n_slots + i: the context needs 2 * n_slots sequences. A decode must be
    one ubatch, because cells are given away between ubatches, too.

    in the cache of a slot       [0 ............................ length)
    guarded                      [0 ....... guarded)
    not yet behind the window              [... at most n_window ...)
    """

    def __init__(self, memory: Any, n_slots: int, n_window: int) -> None:
        """`memory` is the llama_memory_t of a context with `kv_unified`."""
        self._memory = memory
        self._n_window = n_window
        self._n_slots = n_slots
        self._guarded = [0] * n_slots

    def grown(self, slot: int, length: int) -> None:
        """A slot holds `length` tokens now: call it after each decode and copy.

        Guarding in whole windows suffices for chunked windows (Llama 4), too, which begin at their multiples.
        """
        guarded = self._guarded[slot]
        if length // self._n_window == guarded // self._n_window:
            return
        llama_cpp.llama_memory_seq_cp(self._memory, slot, self._n_slots + slot, guarded, length)
        self._guarded[slot] = length

    def trimmed(self, slot: int, n_keep: int) -> None:
        """A slot was cut back to its first `n_keep` tokens: the rest may be given away."""
        if self._guarded[slot] > n_keep:
            llama_cpp.llama_memory_seq_rm(self._memory, self._n_slots + slot, n_keep, -1)
            self._guarded[slot] = n_keep
