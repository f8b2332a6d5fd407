"""Keeps states that slots had, for models that cannot take tokens back.

Further sequences, which are never decoded, share a slot's cells and recurrent state. llama.cpp does not write
into a state with two owners: the next decode of the slot reads the old one and writes another
(`llama_memory_recurrent::find_slot`). So nothing is copied, and going back is exact.
"""

from typing import Any

import llama_cpp


class StepCheckpoints:
    """`n_each` states of each of `n_slots` slots: the context needs n_slots * (1 + n_each) sequences.

    It also needs `kv_unified`. Slot i keeps its states in the places i * n_each to (i + 1) * n_each.
    """

    def __init__(self, memory: Any, n_slots: int, n_each: int) -> None:
        """`memory` is a llama_memory_t."""
        self._memory = memory
        self._n_slots = n_slots
        self._n_each = n_each
        self._lengths: dict[int, int] = {}  # place → tokens

    def save(self, slot: int, place: int) -> None:
        """Keep the state of `slot`. It must have been decoded since it was last cut back.

        The whole sequence is copied: the copy of a recurrent state is always that after its last token.
        """
        assert place // self._n_each == slot, f"{place} is no place of slot {slot}"
        self._copy(slot, self._n_slots + place)
        self._lengths[place] = llama_cpp.llama_memory_seq_pos_max(self._memory, slot) + 1

    def restore(self, place: int, slot: int) -> None:
        """Give `slot` the state that was kept in `place`, mostly one of its own; it stays there."""
        assert place in self._lengths, f"no state is kept in {place}"
        self._copy(self._n_slots + place, slot)
        self.trimmed(slot, self._lengths[place])

    def trimmed(self, slot: int, n_keep: int) -> None:
        """`slot` was cut back to `n_keep` tokens: longer states of it only occupy cells."""
        for place in range(slot * self._n_each, (slot + 1) * self._n_each):
            if self._lengths.get(place, 0) > n_keep:
                del self._lengths[place]
                llama_cpp.llama_memory_seq_rm(self._memory, self._n_slots + place, -1, -1)

    def _copy(self, source: int, target: int) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory, target, -1, -1)
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, -1, -1)
