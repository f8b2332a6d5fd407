"""Keeps the state that each slot had before its last draft, for models that cannot take tokens back.

A second sequence per slot, which is never decoded, shares the slot's cells and recurrent state. llama.cpp
does not write into a state with two owners: the next decode of the slot reads the old one and writes another
(`llama_memory_recurrent::find_slot`). So nothing is copied, and going back is exact.
"""

from typing import Any

import llama_cpp


class StepCheckpoints:
    """Slot i is saved in sequence n_slots + i: the context needs 2 * n_slots sequences, and `kv_unified`."""

    def __init__(self, memory: Any, n_slots: int) -> None:
        """`memory` is a llama_memory_t."""
        self._memory = memory
        self._n_slots = n_slots
        self._lengths: dict[int, int] = {}

    def save(self, slot: int) -> None:
        """Remember the state of `slot`. It must have been decoded since it was last cut back.

        The whole sequence is copied: the copy of a recurrent state is always that after its last token.
        """
        self._copy(slot, self._n_slots + slot)
        self._lengths[slot] = llama_cpp.llama_memory_seq_pos_max(self._memory, slot) + 1

    def restore(self, slot: int) -> None:
        """Go back to the state that was saved; it stays saved."""
        assert slot in self._lengths, f"slot {slot} was not saved"
        self._copy(self._n_slots + slot, slot)

    def trimmed(self, slot: int, n_keep: int) -> None:
        """`slot` was cut back to `n_keep` tokens by other means: a longer saved state only occupies cells."""
        if self._lengths.get(slot, 0) > n_keep:
            del self._lengths[slot]
            llama_cpp.llama_memory_seq_rm(self._memory, self._n_slots + slot, -1, -1)

    def _copy(self, source: int, target: int) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory, target, -1, -1)
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, -1, -1)
