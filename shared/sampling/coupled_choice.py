"""The coupled choice: Gumbel-max under noise that lead and backs share.

The choice is `argmax_i logit_i / temperature + g(seed, position, i)` over the candidates that the filters
leave: an exact sample of the filtered distribution.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.sampling.noise import exceeding, gumbel
from shared.sampling.top_k import candidates_for_top_k, top_k

_FEW = 2048
"""Up to this many candidates, computing all noise is faster than finding those that need any."""

_N_FAVOURITES = 64


@dataclass(frozen=True, slots=True)
class RankedToken:
    """A token and its confidence: the softmax of its score, noise included, over the candidates.

    This is not the token's probability. The noise is known; what is uncertain is whether a model with
    slightly different logits chooses the same token under it.
    """

    token: int
    confidence: float


def rank_scores(scores: NDArray[np.floating[Any]], ids: NDArray[np.int32], n: int) -> list[RankedToken]:
    """The `n` tokens with the highest scores, best first; of equal scores the lowest id comes first."""
    ascending = ids is every_token(len(scores))
    top = top_k(scores, n) if ascending else np.lexsort((ids, -scores))[:n]
    # 32 bits are enough for a hint, and exp is several times as fast.
    weights = (scores - scores[top[0]]).astype(np.float32, copy=False)
    total = float(np.exp(weights, out=weights).sum())
    return [RankedToken(int(ids[i]), float(weights[i]) / total) for i in top]


@functools.lru_cache(maxsize=8)
def every_token(n_vocab: int) -> NDArray[np.int32]:
    """The ids of a whole vocabulary, ascending; always the same read-only array."""
    ids = np.arange(n_vocab, dtype=np.int32)
    ids.flags.writeable = False
    return ids


def coupled_choice(
    ids: NDArray[np.int32], scaled_logits: NDArray[np.float32], seed: int, position: int
) -> int:
    """Gumbel-max under the shared noise; `scaled_logits` are already divided by the temperature."""
    if len(ids) == 1:
        return int(ids[0])
    if len(ids) > _FEW and ids is every_token(len(ids)):
        ids = _rivals(scaled_logits, seed, position)
        scaled_logits = scaled_logits[ids]
    return int(ids[np.argmax(scaled_logits + gumbel(seed, position, ids))])


def _rivals(scaled_logits: NDArray[np.float32], seed: int, position: int) -> NDArray[np.int32]:
    """Ids that include the token with the largest sum of logit and noise; ascending, with duplicates.

    best: the largest sum among the tokens with the largest logits. Any other token needs noise of at least
    best - ceiling, where ceiling is the largest logit among those others.
    """
    n = len(scaled_logits)
    favourites, ceiling = candidates_for_top_k(scaled_logits, _N_FAVOURITES)
    if len(favourites) > 8 * _N_FAVOURITES:  # many equal logits
        favourites, ceiling = favourites[:_N_FAVOURITES], float(scaled_logits.max())
    if len(favourites) < _N_FAVOURITES:  # NaNs
        return every_token(n)
    best = float((scaled_logits[favourites] + gumbel(seed, position, favourites)).max())
    if not math.isfinite(best - ceiling):
        return every_token(n)
    rivals = np.concatenate((favourites, exceeding(seed, position, n, best - ceiling)))
    rivals.sort()
    return rivals.astype(np.int32)


def likeliest(ids: NDArray[np.int32], logits: NDArray[np.floating[Any]]) -> int:
    """The candidate with the largest logit; of equal logits the lowest id, as in a plain argmax.

    The filters may reorder the candidates; then numpy's argmax alone would not do.
    """
    if ids is every_token(len(ids)):
        return int(logits.argmax())
    return int(ids[logits == logits.max()].min())
