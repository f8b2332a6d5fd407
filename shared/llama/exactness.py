"""Does the width of a batch change a token's logits? Measured, because it decides what "the same text" means.

llama.cpp multiplies one token's activations by another kernel than several tokens': for quantized weights
on CPUs both give the same bits, for f16 and f32 weights they do not, and a near-tie may fall the other way
depending on how many draft tokens stood beside it. Where a second token costs next to nothing, single-token
steps can take the kernel for several, and the text is bit for bit the same again.
"""

import math
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.llama.model import Model
from shared.llama.span import Span

_WIDTHS = (1, 2, 5)
_REPEATS = 5
_MOST_COST = 1.05
"""With a padded step costing more than this many plain ones, plain speed counts for more."""


@dataclass(frozen=True, slots=True)
class Exactness:
    """`exact`: logits do not depend on the batch's width. `pads`: because single tokens are padded to two."""

    exact: bool
    pads: bool


def warm_up_and_measure(model: Model) -> Exactness:
    """Touch all weights once, then find out; sets the model's padding accordingly. Slot 0 must be empty."""
    context = [token % model.n_vocab for token in range(8)]
    model.decode([Span(0, 0, context, 1)])
    if not model.can_trim:
        model.trim(0, 0)
        return Exactness(exact=True, pads=False)  # never speculates, so every step has one width
    rows, seconds = _probe(model, len(context))
    model.trim(0, 0)
    several_agree = np.array_equal(rows[2], rows[5])
    exact = bool(several_agree and np.array_equal(rows[1], rows[2]))
    pads = bool(not exact and several_agree and seconds[2] <= _MOST_COST * seconds[1])
    model.pads_single_tokens = pads
    return Exactness(exact or pads, pads)


def _probe(model: Model, position: int) -> tuple[dict[int, NDArray[np.float32]], dict[int, float]]:
    """Logits of one token at `position` and the least seconds a step took, by the batch's width.

    The widths take turns, so that a busy moment of the machine does not fall on one of them alone.
    """
    rows: dict[int, NDArray[np.float32]] = {}
    seconds = dict.fromkeys(_WIDTHS, math.inf)
    for width in _WIDTHS * _REPEATS:
        tokens = [token % model.n_vocab for token in range(width)]
        start = time.perf_counter()
        (logits,) = model.decode([Span(0, position, tokens, width)])
        seconds[width] = min(seconds[width], time.perf_counter() - start)
        rows[width] = logits[0].copy()
        model.trim(0, position)
    return rows, seconds
