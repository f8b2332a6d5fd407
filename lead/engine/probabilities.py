"""Probabilities of a chosen token and of the likeliest ones, for clients that ask for them."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lead.engine.events import TokenProbabilities
from shared.sampling.sampler import Sampler
from shared.sampling.top_k import top_k

_LEAST = -1e9
"""JSON has no infinity."""


def model_probabilities(logits: NDArray[np.float32], token: int, n: int) -> TokenProbabilities:
    """Logarithms of the model's own probabilities, before any filter: of `token` and of the `n` likeliest.

    `logits` is of shape (n_vocab,) and not modified.
    """
    largest = float(logits.max())
    norm = largest + math.log(float(np.exp(logits - largest, dtype=np.float64).sum()))
    top = [(int(i), _finite(float(logits[i]) - norm)) for i in top_k(logits, n)]
    return TokenProbabilities(chosen=_finite(float(logits[token]) - norm), top=top)


def filtered_probabilities(
    sampler: Sampler, logits: NDArray[np.float32], position: int, token: int, n: int
) -> TokenProbabilities:
    """Probabilities, not their logarithms, among the candidates that the filters leave."""
    ids, weights = sampler.distribution(logits, position)
    order = np.lexsort((ids, -weights))[:n]
    chosen = weights[ids == token]
    # If a grammar rejected the first choice, the chosen token is not among these.
    return TokenProbabilities(
        chosen=float(chosen[0]) if len(chosen) else 1.0,
        top=[(int(ids[i]), float(weights[i])) for i in order] if len(chosen) else [(token, 1.0)][:n],
    )


def _finite(value: Any) -> float:
    return max(float(value), _LEAST)
