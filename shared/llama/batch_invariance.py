"""Batch invariance: whether a token's logits depend on how many other tokens are in its batch.

llama.cpp uses one matrix kernel for a single token and another for several. With some weight types and CPUs
both give the same bits; with others they differ in the last bits, and a near-tie between two tokens can be
decided by the number of draft tokens in the batch. Where a second token costs next to nothing, single
tokens are decoded together with a second one, so that every step uses the kernel for several tokens.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.llama.model import Model
from shared.llama.span import Span

_WIDTHS = (1, 2, 5)
_REPEATS = 5
_MAX_PADDING_COST = 1.05
"""Pad single tokens if a step of two costs at most this many times as much as a step of one."""


@dataclass(frozen=True, slots=True)
class BatchInvariance:
    """exact: logits do not depend on the width of the batch, because single tokens are padded if `pads`."""

    exact: bool
    pads: bool


def measure_batch_invariance(model: Model) -> BatchInvariance:
    """Read all weights once, then measure; enable padding in `model` if it pays. Slot 0 must be empty."""
    context = [token % model.n_vocab for token in range(8)]
    model.decode([Span(0, 0, context, 1)])
    if not model.traits.can_speculate:
        model.trim(0, 0)
        return BatchInvariance(exact=True, pads=False)  # every step has the same width
    rows, seconds = _probe(model, context)
    model.trim(0, 0)
    several_agree = np.array_equal(rows[2], rows[5])
    exact = bool(several_agree and np.array_equal(rows[1], rows[2]))
    cheap = seconds[2] <= _MAX_PADDING_COST * seconds[1] and model.traits.can_trim
    pads = bool(not exact and several_agree and cheap)
    model.pads_single_tokens = pads
    return BatchInvariance(exact or pads, pads)


def _probe(model: Model, context: Sequence[int]) -> tuple[dict[int, NDArray[np.float32]], dict[int, float]]:
    """Logits of the token after `context`, and the fastest step in seconds, by width of the batch.

    The context is decoded anew each time, because not every memory can be cut back. The widths are measured
    in turns, so that other load on the machine affects all of them.
    """
    rows: dict[int, NDArray[np.float32]] = {}
    seconds = dict.fromkeys(_WIDTHS, math.inf)
    for width in _WIDTHS * _REPEATS:
        model.trim(0, 0)
        model.decode([Span(0, 0, context, 0)])
        tokens = [token % model.n_vocab for token in range(width)]
        start = time.perf_counter()
        (logits,) = model.decode([Span(0, len(context), tokens, width)])
        seconds[width] = min(seconds[width], time.perf_counter() - start)
        rows[width] = logits[0].copy()
    return rows, seconds
