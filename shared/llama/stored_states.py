"""States and texts of slots in host memory.

A state holds what llama.cpp cannot compute backwards: a recurrent state and the cells of sliding windows
(`LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY`). The keys and values of full attention stay in the slot, so a state is
of no use without the beginning of its text. A text is everything in a slot; a part is some of its tokens. A
spare sequence shares the cells of a part while they are written or read.
"""

from typing import Any

from shared.cache_edits import Snapshot
from shared.errors import DecodeFatalError
from shared.llama.host_memory import HostBlock, HostMemory
from shared.llama.memory_traits import SlotPart
from shared.llama.native import llama_cpp
from shared.llama.positions import Positions

_PARTIAL = llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
_WHOLE = 0
_COPY = -1
"""The key under which a text is stored while it is copied to another slot."""


class StoredStates(SlotPart):
    """States and texts of slots that were copied to host memory."""

    def __init__(self, context: Any, spare: int | None, memory: HostMemory, positions: Positions) -> None:
        """context: a llama_context. spare: a sequence to store parts with; None: texts are stored
        as a whole.
        """
        self._positions = positions
        self._context = context
        self._host = memory
        self._memory = llama_cpp.llama_get_memory(context)
        self._spare = spare
        self._states: dict[int, HostBlock] = {}
        self._lent: dict[int, HostBlock] = {}

    def store(self, slot: int, snapshot: Snapshot) -> None:
        """Store a state or a text of a slot; raises DecodeFatalError."""
        if snapshot.kind == "state":
            self._store(slot, snapshot.key, _PARTIAL)
        elif self._spare is None:
            assert snapshot.start == 0, "this model stores texts as a whole"
            self._store(slot, snapshot.key, _WHOLE, self._positions.packed(slot, 0, snapshot.end))
        else:
            start, end = (self._positions.position_of(slot, n) for n in (snapshot.start, snapshot.end))
            llama_cpp.llama_memory_seq_cp(self._memory, slot, self._spare, start, end)
            packed = self._positions.packed(slot, snapshot.start, snapshot.end)
            self._store(self._spare, snapshot.key, _WHOLE, packed)
            llama_cpp.llama_memory_seq_rm(self._memory, self._spare, -1, -1)

    def restore(self, slot: int, snapshot: Snapshot, n_keep: int) -> None:
        """Set a slot back to a state, or add a text up to `n_keep` tokens; raises DecodeFatalError."""
        if snapshot.kind == "state":
            self._load(slot, slot, snapshot.key, snapshot.end, _PARTIAL)
        elif self._spare is None:
            self._load(slot, slot, snapshot.key, n_keep, _WHOLE)
        else:
            self._load(self._spare, slot, snapshot.key, n_keep, _WHOLE)
            llama_cpp.llama_memory_seq_cp(self._memory, self._spare, slot, -1, -1)
            llama_cpp.llama_memory_seq_rm(self._memory, self._spare, -1, -1)

    def copy_text(self, source: int, slot: int, n_keep: int) -> None:
        """Give an empty slot the first `n_keep` tokens of another slot; raises DecodeFatalError."""
        self._store(source, _COPY, _WHOLE)
        self._load(slot, slot, _COPY, n_keep, _WHOLE)
        self.forget(_COPY)

    def forget(self, key: int) -> None:
        block = self._states.pop(key)
        if key not in self._lent:
            self._host.give_back(block)

    def lend(self, key: int) -> memoryview | None:
        """Return the bytes of a snapshot for another thread, until `take_back`; None: it is not stored yet,
        or it is lent already.
        """
        block = self._states.get(key)
        if block is None or key in self._lent:
            return None
        self._lent[key] = block
        return block.bytes()

    def take_back(self, key: int) -> None:
        """End the lending of memory, which is no longer read or written."""
        block = self._lent.pop(key)
        if key not in self._states:
            self._host.give_back(block)

    def reserve(self, key: int, size: int) -> memoryview:
        """Return a new snapshot of `size` bytes, lent for writing."""
        block = self._states[key] = self._lent[key] = self._host.take(size)
        return block.bytes()

    def clear(self) -> None:
        for key in list(self._states):
            self.forget(key)
        self._host.clear()

    def _store(self, slot: int, key: int, flags: int, positions: bytes = b"") -> None:
        """Store the state of a slot. positions: the positions as bytes, which are stored after llama.cpp's
        bytes.
        """
        size = llama_cpp.llama_state_seq_get_size_ext(self._context, slot, flags)
        block = self._states[key] = self._host.take(size + len(positions))
        if positions:
            block.bytes()[size:] = positions
        if llama_cpp.llama_state_seq_get_data_ext(self._context, block.pointer, size, slot, flags) != size:
            raise DecodeFatalError(f"the state of slot {slot} cannot be stored")

    def _load(self, sequence: int, slot: int, key: int, n_keep: int, flags: int) -> None:
        """Load a state into `sequence`, which is `slot` itself or continues its text."""
        block = self._states[key]
        n_read = llama_cpp.llama_state_seq_set_data_ext(
            self._context, block.pointer, block.size, sequence, flags
        )
        try:
            self._positions.unpack(slot, block.bytes()[n_read:].tobytes() if n_read < block.size else b"")
        except ValueError:
            n_read = 0
        if not n_read:
            raise DecodeFatalError(f"the state of slot {slot} cannot be restored")
        end = self._positions.position_of(slot, n_keep)
        if not llama_cpp.llama_memory_seq_rm(self._memory, sequence, end, -1):
            raise DecodeFatalError(f"slot {slot} cannot be cut back to {n_keep} tokens")
