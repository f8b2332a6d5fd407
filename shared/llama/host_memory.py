"""Host memory for stored states: pinned if a device offers it (`ggml-backend.h`).

A device reads and writes pinned memory itself; with other memory its driver makes one more copy. But pinning
takes time for each page, so freed blocks are kept for reuse.
"""

import ctypes
import logging
from dataclasses import dataclass
from typing import Any

import numpy as np

from shared.llama.unbound import function

log = logging.getLogger("llama")

_MIN_BYTES = 4 << 20
"""The minimum size of pinned blocks: fewer bytes are copied quickly even if they are not pinned."""
_MAX_BLOCKS = 2048
"""The maximum number of pinned blocks. Some Vulkan drivers allow only 4096 allocations in all."""
_SLACK = 8
"""A block is reused for other data if it is larger than the data by at most the data's size / `_SLACK`."""


@dataclass(slots=True, eq=False)
class HostBlock:
    """A block of memory: `size` used bytes of `n_allocated` at `pointer`. owner: an array, or a pinned
    ggml_backend_buffer_t.
    """

    pointer: Any
    size: int
    n_allocated: int
    owner: Any

    @property
    def is_pinned(self) -> bool:
        return isinstance(self.owner, int)

    def bytes(self) -> memoryview:
        """Return the block's content; the view keeps an array alive, but not a pinned buffer."""
        if not self.is_pinned:
            return memoryview(self.owner)
        array = (ctypes.c_uint8 * self.size).from_address(ctypes.addressof(self.pointer.contents))
        return memoryview(array).cast("B")


class HostMemory:
    """Allocates and reuses blocks."""

    def __init__(self, pinned: int | None, n_max: int) -> None:
        """pinned: a ggml_backend_buffer_type_t; None: there is none. n_max: the maximum number of bytes to
        keep.

        Blocks kept for reuse are freed if all blocks together would exceed `n_max`.
        """
        self._pinned = pinned
        self._n_max = n_max
        self._n_bytes = self._n_blocks = 0  # pinned
        self._spare: list[HostBlock] = []  # the longest unused first

    def take(self, size: int) -> HostBlock:
        """Return a block with undefined content."""
        if self._pinned and size >= _MIN_BYTES and (block := self._reused(size) or self._allocated(size)):
            return block
        array = np.empty(size, np.uint8)
        return HostBlock(array.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8)), size, size, array)

    def give_back(self, block: HostBlock) -> None:
        """Free a block for reuse; its content is lost."""
        if block.is_pinned:
            self._spare.append(block)
            self._free_spare(0)

    def clear(self) -> None:
        """Release all free blocks to the system."""
        while self._spare:
            self._free()

    def _reused(self, size: int) -> HostBlock | None:
        fitting = [each for each in self._spare if size <= each.n_allocated <= size + size // _SLACK]
        if not fitting:
            return None
        block = min(fitting, key=lambda each: each.n_allocated)
        self._spare.remove(block)
        block.size = size
        return block

    def _allocated(self, size: int) -> HostBlock | None:
        """Return a new pinned block; None: the device refuses, or there are too many blocks."""
        self._free_spare(size)
        if self._n_blocks == _MAX_BLOCKS:
            return None
        buffer: int | None = function("ggml_backend_buft_alloc_buffer")(self._pinned, size)
        if not buffer:
            log.debug("cannot allocate %d bytes of pinned memory", size)
            return None
        self._n_bytes += size
        self._n_blocks += 1
        address = function("ggml_backend_buffer_get_base")(buffer)
        return HostBlock(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8)), size, size, buffer)

    def _free_spare(self, n_more: int) -> None:
        """Free spare blocks as needed for `n_more` bytes in another block."""
        while self._spare and (
            self._n_bytes + n_more > self._n_max or self._n_blocks + (n_more > 0) > _MAX_BLOCKS
        ):
            self._free()

    def _free(self) -> None:
        block = self._spare.pop(0)
        self._n_bytes -= block.n_allocated
        self._n_blocks -= 1
        function("ggml_backend_buffer_free")(block.owner)
