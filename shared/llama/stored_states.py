"""States of slots in host memory: what llama.cpp cannot compute backwards.

Only recurrent states and the cells of sliding windows are stored (`LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY`). The
keys and values of full attention stay in the slot; without the beginning of its text a state is of no use.
"""

import ctypes
from typing import Any

import llama_cpp

from shared.errors import DecodeFatalError

_FLAGS = llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY


class StoredStates:
    """The states of a context, each with the number of its tokens."""

    def __init__(self, context: Any) -> None:
        """`context` is a llama_context pointer."""
        self._context = context
        self._memory = llama_cpp.llama_get_memory(context)
        self._states: dict[int, tuple[int, ctypes.Array[ctypes.c_uint8]]] = {}

    def store(self, slot: int, key: int) -> None:
        """Store the state of a slot; raises DecodeFatalError."""
        size = llama_cpp.llama_state_seq_get_size_ext(self._context, slot, _FLAGS)
        buffer = (ctypes.c_uint8 * size)()
        if llama_cpp.llama_state_seq_get_data_ext(self._context, buffer, size, slot, _FLAGS) != size:
            raise DecodeFatalError(f"the state of slot {slot} cannot be stored")
        n_tokens = llama_cpp.llama_memory_seq_pos_max(self._memory, slot) + 1
        self._states[key] = n_tokens, buffer

    def load(self, slot: int, key: int) -> int:
        """Go back to a stored state; returns its number of tokens. Raises DecodeFatalError."""
        n_tokens, buffer = self._states[key]
        size = len(buffer)
        if llama_cpp.llama_state_seq_set_data_ext(self._context, buffer, size, slot, _FLAGS) != size:
            raise DecodeFatalError(f"the state of slot {slot} cannot be restored")
        if not llama_cpp.llama_memory_seq_rm(self._memory, slot, n_tokens, -1):
            raise DecodeFatalError(f"slot {slot} cannot be cut back to {n_tokens} tokens")
        return n_tokens

    def forget(self, key: int) -> None:
        """Free a state."""
        del self._states[key]
