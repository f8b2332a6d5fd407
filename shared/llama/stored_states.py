"""States and texts of slots in host memory.

A state is what llama.cpp cannot compute backwards: a recurrent state and the cells of sliding windows
(`LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY`). The keys and values of full attention stay in the slot; without the
beginning of its text a state is of no use. A text is all that a slot holds, a part some tokens of it: a
spare sequence shares their cells while they are written or read.
"""

import ctypes
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from shared.errors import DecodeFatalError
from shared.llama.memory_traits import SlotPart

_PARTIAL = llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
_WHOLE = 0
_COPY = -1
"""The key of a text that is copied."""


class StoredStates(SlotPart):
    """What was stored of a context."""

    def __init__(self, context: Any) -> None:
        """`context` is a llama_context pointer."""
        self._context = context
        self._memory = llama_cpp.llama_get_memory(context)
        self._states: dict[int, NDArray[np.uint8]] = {}

    def store(self, slot: int, key: int) -> None:
        """Store the state of a slot; raises DecodeFatalError."""
        self._store(slot, key, _PARTIAL)

    def store_text(self, slot: int, key: int) -> None:
        """Store all that a slot holds; raises DecodeFatalError."""
        self._store(slot, key, _WHOLE)

    def load(self, slot: int, key: int, n_tokens: int) -> None:
        """Go back to a stored state, which is that after `n_tokens`; raises DecodeFatalError."""
        self._load(slot, key, n_tokens, _PARTIAL)

    def load_text(self, slot: int, key: int, n_keep: int) -> None:
        """Give a slot the first `n_keep` tokens of a stored text; raises DecodeFatalError."""
        self._load(slot, key, n_keep, _WHOLE)

    def copy_text(self, source: int, slot: int, n_keep: int) -> None:
        """Give an empty slot the first `n_keep` tokens of another; raises DecodeFatalError."""
        self.store_text(source, _COPY)
        self.load_text(slot, _COPY, n_keep)
        self.forget(_COPY)

    def store_part(self, slot: int, spare: int, key: int, start: int, end: int) -> None:
        """Store the tokens `start` to `end` of a slot; raises DecodeFatalError."""
        llama_cpp.llama_memory_seq_cp(self._memory, slot, spare, start, end)
        self._store(spare, key, _WHOLE)
        llama_cpp.llama_memory_seq_rm(self._memory, spare, -1, -1)

    def load_part(self, slot: int, spare: int, key: int, n_keep: int) -> None:
        """Add a stored part to a slot, up to `n_keep` tokens of the text; raises DecodeFatalError."""
        self._load(spare, key, n_keep, _WHOLE)
        llama_cpp.llama_memory_seq_cp(self._memory, spare, slot, -1, -1)
        llama_cpp.llama_memory_seq_rm(self._memory, spare, -1, -1)

    def forget(self, key: int) -> None:
        del self._states[key]

    def clear(self) -> None:
        self._states.clear()

    def _store(self, slot: int, key: int, flags: int) -> None:
        size = llama_cpp.llama_state_seq_get_size_ext(self._context, slot, flags)
        buffer = np.empty(size, np.uint8)
        if llama_cpp.llama_state_seq_get_data_ext(self._context, _pointer(buffer), size, slot, flags) != size:
            raise DecodeFatalError(f"the state of slot {slot} cannot be stored")
        self._states[key] = buffer

    def _load(self, slot: int, key: int, n_keep: int, flags: int) -> None:
        buffer = self._states[key]
        size = len(buffer)
        if llama_cpp.llama_state_seq_set_data_ext(self._context, _pointer(buffer), size, slot, flags) != size:
            raise DecodeFatalError(f"the state of slot {slot} cannot be restored")
        if not llama_cpp.llama_memory_seq_rm(self._memory, slot, n_keep, -1):
            raise DecodeFatalError(f"slot {slot} cannot be cut back to {n_keep} tokens")


def _pointer(buffer: NDArray[np.uint8]) -> Any:
    return buffer.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
