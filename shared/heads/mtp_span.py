"""Inputs and outputs of a head. Imports no native library."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class MtpSpan(NamedTuple):
    """Tokens of a slot at positions start, start + 1, …, each with the hidden state after the preceding
    token.
    """

    slot: int
    start: int
    tokens: Sequence[int]
    states: Sequence[NDArray[np.float32]]


class MtpOutput(NamedTuple):
    """The results for a span's last token: logits of shape (n_vocab,), and the head's state of shape
    (n_embd,).
    """

    logits: NDArray[np.float32]
    state: NDArray[np.float32]
