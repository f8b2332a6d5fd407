"""What heads that predict further tokens (MTP) read and give. Imports no native library: drafters use it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class HeadSpan(NamedTuple):
    """Tokens of a slot at positions start, start + 1, …, each with the hidden state of the one before it."""

    slot: int
    start: int
    tokens: Sequence[int]
    rows: Sequence[NDArray[np.float32]]


class HeadOutput(NamedTuple):
    """Behind the last token of a span: logits, shape (n_vocab,), and the head's hidden state, (n_embd,)."""

    logits: NDArray[np.float32]
    row: NDArray[np.float32]
