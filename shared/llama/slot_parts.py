"""Data that is kept for slots beside their cells; a `Model` reports every edit to each part."""

from collections.abc import Iterable
from typing import Any

from shared.errors import WindowLostError
from shared.llama.memory_traits import SlotPart
from shared.llama.native import llama_cpp
from shared.llama.positions import PositionOf


class Padding(SlotPart):
    """The slots that end with padding. lengths: the number of tokens before the padding, by slot."""

    def __init__(self) -> None:
        self.lengths: dict[int, int] = {}

    def decoded(self, slot: int, length: int, n_padding: int) -> None:
        if n_padding:
            self.lengths[slot] = length

    def trimmed(self, slot: int, n_keep: int) -> None:  # noqa: ARG002 - padding is gone in any case
        self.lengths.pop(slot, None)


class WindowGuard(SlotPart):
    """Keeps the cells of a sliding-window cache that later tokens may need again.

    `find_slot` (llama-kv-cache.cpp) reuses a cell as soon as the sequence that owns it has moved on by more
    than its window, even in a cache of full size (`swa_full`). That is right if a sequence only grows. But a
    sequence that is cut back or shared needs those cells again, and another slot may have overwritten them. A
    cell with two owners is never reused. Therefore each slot has a second sequence, which is never decoded
    and shares the slot's cells before they leave the window.

    Slot i of `n_slots` in one pool is guarded by sequence n_slots + i, so the context needs 2 * n_slots
    sequences. A decode must be one ubatch, because cells are reused even between the ubatches of a decode.

        in the cache of a slot       [0 ............................ length)
        guarded                      [0 ....... guarded)
        not yet left by the window             [... at most n_window ...)
    """

    def __init__(self, memory: Any, n_slots: int, n_window: int, position_of: PositionOf) -> None:
        """memory: the llama_memory_t of a context with `kv_unified`. n_window: as in `ContextNeeds`."""
        self._position_of = position_of
        self._memory = memory
        self._n_window = n_window
        self._n_slots = n_slots
        self._guarded = [0] * n_slots

    def decoded(self, slot: int, length: int, n_padding: int) -> None:
        """Guard whole windows. That is enough for chunked windows (Llama 4), which begin at multiples of the
        window size.
        """
        length = self._position_of(slot, length) + n_padding
        guarded = self._guarded[slot]
        if length // self._n_window == guarded // self._n_window:
            return
        llama_cpp.llama_memory_seq_cp(self._memory, slot, self._n_slots + slot, guarded, length)
        self._guarded[slot] = length

    def copied(self, source: int, slot: int, n_keep: int) -> None:  # noqa: ARG002 - both own the cells
        self.decoded(slot, n_keep, 0)

    def loaded(self, slot: int, key: int, n_keep: int) -> None:  # noqa: ARG002 - cells are as if decoded
        self.decoded(slot, n_keep, 0)

    def trimmed(self, slot: int, n_keep: int) -> None:
        end = self._position_of(slot, n_keep)
        if self._guarded[slot] > end:
            llama_cpp.llama_memory_seq_rm(self._memory, self._n_slots + slot, end, -1)
            self._guarded[slot] = end


class WindowCheck(SlotPart):
    """Checks that a slot that was cut back still holds the window that its next token sees.

    It is for a cache of sliding windows that is not of full size. `llama_memory_seq_rm` succeeds even if
    cells of the window are reused, and logits would then be wrong without an error.

        in the text of a slot    [0 ................................ n_keep)
        seen by the next token               [n_keep - n_window + 1 .. n_keep)
        must be in the cache     all of that
    """

    def __init__(self, memory: Any, n_window: int, position_of: PositionOf) -> None:
        """memory: a llama_memory_t. n_window: as in `ContextNeeds`."""
        self._position_of = position_of
        self._memory = memory
        self._n_window = n_window
        self._lost: set[int] = set()

    def trimmed(self, slot: int, n_keep: int) -> None:
        first = llama_cpp.llama_memory_seq_pos_min(self._memory, slot) if n_keep else 0
        if 0 <= first <= max(0, self._position_of(slot, n_keep) - self._n_window + 1):
            self._lost.discard(slot)
        else:
            self._lost.add(slot)

    def copied(self, source: int, slot: int, n_keep: int) -> None:  # noqa: ARG002 - only its window matters
        self.trimmed(slot, n_keep)

    def loaded(self, slot: int, key: int, n_keep: int) -> None:  # noqa: ARG002 - only its window matters
        self.trimmed(slot, n_keep)

    def require(self, slots: Iterable[int]) -> None:
        """Raise WindowLostError if any of `slots` must be emptied before it is used."""
        if lost := sorted(self._lost.intersection(slots)):
            raise WindowLostError(lost)


class StepCheckpoints(SlotPart):
    """Keeps earlier states of slots, for models that cannot remove tokens.

    Additional sequences, which are never decoded, share a slot's cells and recurrent state. llama.cpp does
    not write into a state with two owners: the slot's next decode reads the old state and writes another
    (`llama_memory_recurrent::find_slot`). So nothing is copied, and returning to a state is exact.
    """

    def __init__(self, memory: Any, n_slots: int, n_each: int) -> None:
        """Keep `n_each` states for each of `n_slots` slots in one pool, with n_slots * (1 + n_each)
        sequences.

        Slot i keeps them in the places i * n_each to (i + 1) * n_each. memory: a llama_memory_t.
        """
        self._memory = memory
        self._n_slots = n_slots
        self._n_each = n_each
        self._lengths: dict[int, int] = {}  # place → tokens

    def save(self, slot: int, place: int, n_tokens: int) -> None:
        """Keep the state of `slot` with `n_tokens` tokens in `place`.

        The slot must have been decoded since it was last cut back. The whole sequence is copied, because the
        copy of a recurrent state is always the state after its last token.
        """
        assert place // self._n_each == slot, f"{place} is not a place of slot {slot}"
        self._copy(slot, self._n_slots + place)
        self._lengths[place] = n_tokens

    def restore(self, place: int, slot: int) -> None:
        """Give `slot` the state kept in `place`; the place keeps it, too."""
        assert place in self._lengths, f"no state is kept in {place}"
        self._copy(self._n_slots + place, slot)

    def trimmed(self, slot: int, n_keep: int) -> None:
        """Drop longer states of the slot, which would only occupy cells."""
        for place in range(slot * self._n_each, (slot + 1) * self._n_each):
            if self._lengths.get(place, 0) > n_keep:
                del self._lengths[place]
                llama_cpp.llama_memory_seq_rm(self._memory, self._n_slots + place, -1, -1)

    def _copy(self, source: int, target: int) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory, target, -1, -1)
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, -1, -1)
