"""A chain of llama.cpp's samplers, applied to candidates in numpy arrays."""

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.llama import library
from shared.llama.native import llama_cpp

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])  # llama_token_data


class NativeChain:
    """Owns `samplers` (llama_sampler pointers) and applies them in order; none of them may choose a token."""

    def __init__(self, samplers: Sequence[Any]) -> None:
        library.start()
        self._chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
        weakref.finalize(self, llama_cpp.llama_sampler_free, self._chain)
        for sampler in samplers:
            llama_cpp.llama_sampler_chain_add(self._chain, sampler)
        self._array: Any = llama_cpp.llama_token_data_array()
        self._by_reference = ctypes.byref(self._array)
        self._reserve(64)

    def apply(
        self, ids: NDArray[np.integer[Any]], logits: NDArray[np.float32], *, are_sorted: bool
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return (ids, logits) of the remaining candidates, valid until the next call.

        The input, at least one candidate, is not modified. are_sorted: the logits are in descending order.
        """
        n = len(ids)
        assert n, "llama.cpp aborts the process if there are no candidates"
        if n > len(self._candidates):
            self._reserve(n)
        self._ids[:n] = ids
        self._logits[:n] = logits
        array = self._array
        array.data = self._pointer
        array.size = n
        array.selected = -1
        array.sorted = are_sorted
        llama_cpp.llama_sampler_apply(self._chain, self._by_reference)
        # llama.h says of `data`: "this pointer can be modified by the samplers".
        address = ctypes.addressof(array.data.contents)
        if address == self._address:
            return self._ids[: array.size], self._logits[: array.size]
        buffer = (ctypes.c_byte * (array.size * _CANDIDATE.itemsize)).from_address(address)
        left = np.frombuffer(buffer, _CANDIDATE)
        return left["id"], left["logit"]

    def accept(self, token: int) -> None:
        llama_cpp.llama_sampler_accept(self._chain, token)

    def reset(self) -> None:
        llama_cpp.llama_sampler_reset(self._chain)

    def _reserve(self, n: int) -> None:
        """Allocate room for `n` candidates, and cache the objects that every call needs."""
        self._candidates = np.zeros(n, _CANDIDATE)
        self._ids, self._logits = self._candidates["id"], self._candidates["logit"]
        self._address = self._candidates.ctypes.data
        self._pointer = ctypes.cast(self._address, llama_cpp.llama_token_data_p)
