"""A llama_batch over numpy arrays: filling it element by element with ctypes costs more than sampling."""

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from shared.llama.span import Span


class Batch:
    """A llama_batch of at most `n_batch` tokens; `native` is the structure for llama_decode."""

    def __init__(self, n_batch: int) -> None:
        self._token = np.zeros(n_batch, np.int32)
        self._position = np.zeros(n_batch, np.int32)
        self._n_slots = np.ones(n_batch, np.int32)  # each token belongs to one sequence
        self._slot = np.zeros(n_batch, np.int32)
        addresses = self._slot.ctypes.data + self._slot.itemsize * np.arange(n_batch, dtype=np.uintp)
        self._slot_pointers = addresses.astype(np.uintp)
        self._wanted = np.zeros(n_batch, np.int8)
        self.native = llama_cpp.llama_batch(
            n_tokens=0,
            token=_pointer(self._token, ctypes.c_int32),
            embd=None,
            pos=_pointer(self._position, ctypes.c_int32),
            n_seq_id=_pointer(self._n_slots, ctypes.c_int32),
            seq_id=_pointer(self._slot_pointers, ctypes.POINTER(ctypes.c_int32)),
            logits=_pointer(self._wanted, ctypes.c_int8),
        )

    def fill(
        self,
        spans: Sequence[Span],
        n_padding: Sequence[int],
        n_vocab: int,
        n_slots: int,
        n_outputs: Sequence[int] | None = None,
    ) -> int:
        """Write `spans` into the arrays, each followed by `n_padding` tokens.

        Logits are computed as spans say, or of the last `n_outputs` tokens of each, padding included. Returns
        the number of tokens. Raises ValueError for slots, positions or token ids out of range.
        """
        at = 0
        for i, (span, n_pad) in enumerate(zip(spans, n_padding, strict=True)):
            end = at + len(span.tokens)
            if end > len(self._token) or not 0 <= span.slot < n_slots or not span.tokens or span.start < 0:
                raise ValueError(f"not a batch of at most {len(self._token)} tokens: {span}")
            self._token[at:end] = span.tokens
            self._position[at:end] = np.arange(span.start, span.start + end - at)
            self._slot[at:end] = span.slot
            self._wanted[at:end] = 0
            self._wanted[end - span.n_logits : end] = 1
            at = end
            if n_pad:
                at = end + n_pad
                self._token[end:at] = span.tokens[-1]
                self._position[end:at] = span.start + len(span.tokens) + np.arange(n_pad)
                self._slot[end:at] = span.slot
                self._wanted[end:at] = 0
            if n_outputs:
                self._wanted[at - n_outputs[i] : at] = 1
        tokens = self._token[:at]
        if at == 0 or int(tokens.min()) < 0 or int(tokens.max()) >= n_vocab:
            raise ValueError(f"a batch needs tokens in 0 ≤ id < {n_vocab}")
        self.native.n_tokens = at
        return at


def _pointer(array: NDArray[Any], kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))
