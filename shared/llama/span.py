"""The part of a batch that belongs to one sequence. Imports no native library, as schedulers use it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from shared.image_span import ImageSpan

if TYPE_CHECKING:  # settings, which import this, need no numpy
    import numpy as np
    from numpy.typing import NDArray


@dataclass(slots=True)  # not frozen, as all that is made for each step: twice the time
class Span:
    """Tokens of one sequence, in rows start, start + 1, …; logits are computed for the last `n_logits`.

    slot: the sequence id in llama.cpp, 0 ≤ slot < n_slots. is_prompt: the tokens belong to a prompt, which
    matters only for `shared.exact.batch_invariance`. image: the tokens are the identities of this image's
    rows.
    """

    slot: int
    start: int
    tokens: Sequence[int]
    n_logits: int
    is_prompt: bool = False
    image: ImageSpan | None = None

    @property
    def is_verified(self) -> bool:
        """True if all tokens of the span need logits, as generated tokens and drafts do."""
        return self.n_logits == len(self.tokens)


Rows: TypeAlias = "NDArray[np.float32]"
"""Logits, shape (n_logits, n_vocab)."""


class SpanPart(NamedTuple):
    """A part of span `number`, or all of it, in one pass, followed by `n_padding` tokens.

    n_outputs: the number of tokens at the end, padding included, for which logits are computed; None: the
    span's `n_logits`, for tokens before the padding.
    """

    number: int
    span: Span
    n_padding: int = 0
    n_outputs: int | None = None

    @property
    def size(self) -> int:
        """The number of tokens, padding included."""
        return len(self.span.tokens) + self.n_padding

    @property
    def n_rows(self) -> int:
        """The number of rows of logits that are computed."""
        return self.span.n_logits if self.n_outputs is None else self.n_outputs

    def wanted(self, outputs: Rows) -> Rows:
        """Return the rows of `outputs` that the span needs."""
        if self.n_outputs is None:
            return outputs
        end = len(outputs) - self.n_padding if self.span.n_logits else 0
        return outputs[end - self.span.n_logits : end]


Pass = list[SpanPart]
"""The work of one call of llama_decode."""
