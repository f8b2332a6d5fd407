"""llama_batch structures over numpy arrays: with ctypes, filling them would take longer than sampling."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.llama.native import llama_cpp
from shared.llama.positions import PositionOf
from shared.llama.span import Pass, Span


class NativeBatch:
    """A llama_batch with room for `n_batch` tokens; `native` is the structure for llama_decode."""

    def __init__(
        self,
        n_batch: int,
        embd: NDArray[np.float32] | None = None,
        *,
        with_tokens: bool,
        n_sections: int = 1,
    ) -> None:
        """n_sections: the number of sections of each position; several for embeddings under M-RoPE."""
        self._token = np.zeros(n_batch, np.int32)
        self._position = np.zeros(n_sections * n_batch, np.int32)
        self._n_slots = np.ones(n_batch, np.int32)  # each token belongs to one sequence
        self._slot = np.zeros(n_batch, np.int32)
        addresses = self._slot.ctypes.data + self._slot.itemsize * np.arange(n_batch, dtype=np.uintp)
        self._slot_pointers = addresses.astype(np.uintp)
        self._wanted = np.zeros(n_batch, np.int8)
        self.native = llama_cpp.llama_batch(
            n_tokens=0,
            token=_pointer(self._token, ctypes.c_int32) if with_tokens else None,
            embd=None if embd is None else _pointer(embd, ctypes.c_float),
            pos=_pointer(self._position, ctypes.c_int32),
            n_seq_id=_pointer(self._n_slots, ctypes.c_int32),
            seq_id=_pointer(self._slot_pointers, ctypes.POINTER(ctypes.c_int32)),
            logits=_pointer(self._wanted, ctypes.c_int8),
        )


class Batch(NativeBatch):
    """The tokens of a pass, at most `n_batch`."""

    def __init__(self, n_batch: int, position_of: PositionOf = lambda _, row: row) -> None:
        super().__init__(n_batch, with_tokens=True)
        self._position_of = position_of

    def fill(self, together: Pass, n_vocab: int, n_slots: int) -> int:
        """Write the tokens of a pass into the arrays; return their number, padding included.

        Raises ValueError for slots, positions or token ids out of range.
        """
        if len(together) == 1 and len(together[0].span.tokens) == together[0].size == together[0].n_rows == 1:
            return self._fill_one(together[0].span, n_vocab, n_slots)
        at = 0
        for span, n_padding, n_outputs in ((part.span, part.n_padding, part.n_outputs) for part in together):
            end = at + len(span.tokens)
            after = end + n_padding
            if after > len(self._token) or not 0 <= span.slot < n_slots or not span.tokens or span.start < 0:
                raise ValueError(
                    f"{span} does not fit a batch of {len(self._token)} tokens and {n_slots} slots"
                )
            self._token[at:end] = span.tokens
            self._token[end:after] = span.tokens[-1]
            first = self._position_of(span.slot, span.start)
            self._position[at:after] = np.arange(first, first + after - at)
            self._slot[at:after] = span.slot
            self._wanted[at:after] = 0
            if n_outputs is None:
                self._wanted[end - span.n_logits : end] = 1
            else:
                self._wanted[after - n_outputs : after] = 1
            at = after
        tokens = self._token[:at]
        if at == 0 or int(tokens.min()) < 0 or int(tokens.max()) >= n_vocab:
            raise ValueError(f"a batch needs tokens in 0 ≤ id < {n_vocab}")
        self.native.n_tokens = at
        return at

    def _fill_one(self, span: Span, n_vocab: int, n_slots: int) -> int:
        """Do `fill` for a single token: the usual step without drafts."""
        if not (0 <= span.slot < n_slots and span.start >= 0 and 0 <= span.tokens[0] < n_vocab):
            raise ValueError(
                f"{span} does not fit a batch of tokens below {n_vocab} and slots below {n_slots}"
            )
        self._token[0], self._slot[0], self._wanted[0] = span.tokens[0], span.slot, 1
        self._position[0] = self._position_of(span.slot, span.start)
        self.native.n_tokens = 1
        return 1


def _pointer(array: NDArray[Any], kind: Any) -> Any:
    return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))
