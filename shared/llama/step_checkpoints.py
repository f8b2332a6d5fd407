"""Keeps states that slots had, for models that cannot take tokens back.

Further sequences, which are never decoded, share a slot's cells and recurrent state. llama.cpp does not write
into a state with two owners: the next decode of the slot reads the old one and writes another
(`llama_memory_recurrent::find_slot`). So nothing is copied, and going back is exact.
"""

from typing import Any

import llama_cpp


class StepCheckpoints:
    """`n_each` states of each of `n_slots` slots: the context needs n_slots * (1 + n_each) sequences.

    It also needs `kv_unified`.
    """

    def __init__(self, memory: Any, n_slots: int, n_each: int) -> None:
        """`memory` is a llama_memory_t."""
        self._memory = memory
        self._n_slots = n_slots
        self._n_each = n_each
        self._lengths: list[dict[int, int]] = [{} for _ in range(n_slots)]  # number → tokens

    def save(self, slot: int, number: int) -> None:
        """Keep the state of `slot`. It must have been decoded since it was last cut back.

        The whole sequence is copied: the copy of a recurrent state is always that after its last token.
        """
        self._copy(slot, self._sequence(slot, number))
        self._lengths[slot][number] = llama_cpp.llama_memory_seq_pos_max(self._memory, slot) + 1

    def restore(self, source: int, number: int, slot: int) -> None:
        """Give `slot` a state that was kept of `source`; that stays kept."""
        assert number in self._lengths[source], f"slot {source} has no state {number}"
        self._copy(self._sequence(source, number), slot)
        self.trimmed(slot, self._lengths[source][number])

    def trimmed(self, slot: int, n_keep: int) -> None:
        """`slot` was cut back to `n_keep` tokens: longer states of it only occupy cells."""
        lengths = self._lengths[slot]
        for number in [number for number, n_tokens in lengths.items() if n_tokens > n_keep]:
            del lengths[number]
            llama_cpp.llama_memory_seq_rm(self._memory, self._sequence(slot, number), -1, -1)

    def _sequence(self, slot: int, number: int) -> int:
        return self._n_slots + slot * self._n_each + number

    def _copy(self, source: int, target: int) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory, target, -1, -1)
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, -1, -1)
