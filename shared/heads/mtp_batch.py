"""The llama_batch of a head: tokens, and the hidden states that it reads with them."""

from collections.abc import Sequence

import numpy as np

from shared.heads.mtp_span import MtpSpan
from shared.llama.batch import NativeBatch


class MtpBatch(NativeBatch):
    """A llama_batch of hidden states (`n_embd` values each) and, if `with_tokens`, the token after each."""

    def __init__(self, n_batch: int, n_embd: int, *, with_tokens: bool = True) -> None:
        self._states = np.zeros((n_batch, n_embd), np.float32)
        super().__init__(n_batch, self._states, with_tokens=with_tokens)

    def fill(self, spans: Sequence[MtpSpan], *, with_outputs: bool) -> list[int]:
        """Write the spans into the batch; return the index of the last token of each span."""
        at, last = 0, []
        for span in spans:
            end = at + len(span.tokens)
            self._token[at:end] = span.tokens
            self._states[at:end] = span.states
            self._position[at:end] = np.arange(span.start, span.start + end - at)
            self._slot[at:end] = span.slot
            self._wanted[at:end] = with_outputs
            last.append(end - 1)
            at = end
        self.native.n_tokens = at
        return last
