"""The choice of the next token, in lead and backs: llama.cpp's filters, then the coupled choice.

The choice is Gumbel-max under noise that lead and backs share, over the candidates that the filters leave:
`argmax_i logit_i / temperature + g(seed, position, i)`. It is an exact sample of the filtered distribution,
and a function of seed, position and logits alone. So the text depends only on seed, prompt and target model.
The shared noise must never be combined with a `u < p/q` acceptance test, which would be biased.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shared.sampling.noise import exceeding, gumbel
from shared.sampling.parameters import SamplingParameters
from shared.sampling.top_k import candidates_for_top_k, top_k

_FEW = 2048
"""Up to this many candidates, computing all noise is faster than finding candidates that need noise."""
_N_FAVOURITES = 64


@dataclass(frozen=True, slots=True)
class RankedToken:
    """A token and its confidence: the softmax of its score, noise included, over the candidates.

    This is not the token's probability. The noise is known; it is uncertain whether a model with slightly
    different logits chooses the same token.
    """

    token: int
    confidence: float


class Filters(Protocol):
    """Narrows the candidates as llama.cpp's sampler chain does (`shared.sampling.filters.NativeFilters`)."""

    def apply(
        self, logits: NDArray[np.float32], position: int, among: NDArray[np.int32] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return (ids, logits) of the remaining candidates of `among`, or of all tokens; at least one
        candidate.

        The logits are divided by the temperature; if only one candidate remains, its logit may not be
        divided. The arrays are valid until the next call. If all tokens remain, the ids are
        `every_token(n_vocab)` itself, which makes the choice faster.
        """

    def likeliest(self, logits: NDArray[np.float32]) -> int | None:
        """Return the choice at temperature 0 if the logits alone determine it; None: call `apply`."""

    def accept(self, token: int) -> None:
        """Record a token, for penalties."""

    def reset(self) -> None:
        """Forget all tokens."""


class Sampler:
    """Chooses the tokens of one sequence.

    Call `accept` for each token in order, and `rewind` when accepted tokens are not part of the sequence
    after all.
    """

    def __init__(
        self, parameters: SamplingParameters, filters: Filters | None, history: Sequence[int]
    ) -> None:
        """filters: None if `needs_filters` is False. history: all tokens so far."""
        self._parameters = parameters
        self._filters = filters
        self._is_greedy = parameters.is_greedy
        self._n_remembered = 0 if filters is None else parameters.n_remembered
        self.rewind(history)

    @property
    def is_ready(self) -> bool:
        """False while `choose` would raise PendingAnswerError (see `constrained`)."""
        return True

    def choose(self, logits: NDArray[np.float32], position: int) -> int:
        """Return the token at absolute `position`; logits: shape (n_vocab,), not modified."""
        if self._filters is None:
            return int(logits.argmax())
        if self._is_greedy and (token := self._filters.likeliest(logits)) is not None:
            return token
        ids, left = self._filters.apply(logits, position)
        return self._choose_from(ids, left, position)

    def rank(self, logits: NDArray[np.float32], position: int, n: int) -> list[RankedToken]:
        """Return up to `n` candidates at the absolute `position`, best first; `choose` would return the
        first.

        Under the shared noise, the runners-up are the likely choices of a model with slightly different
        logits.
        """
        return rank_scores(*self._scores(logits, position), n)

    def distribution(
        self, logits: NDArray[np.float32], position: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return (ids, probabilities) of the candidates that the filters leave at absolute `position`."""
        if self._filters is None:
            return np.array([logits.argmax()], np.int32), np.ones(1)
        ids, left = self._filters.apply(logits, position)
        if self._is_greedy:
            return np.array([likeliest(ids, left)], np.int32), np.ones(1)
        weights = np.exp(left.astype(np.float64) - float(left.max()))
        return ids.copy(), weights / weights.sum()

    def _choose_from(self, ids: NDArray[np.int32], left: NDArray[np.float32], position: int) -> int:
        if self._is_greedy:
            return likeliest(ids, left)
        return coupled_choice(ids, left, self._parameters.seed, position)

    def _scores(
        self, logits: NDArray[np.float32], position: int
    ) -> tuple[NDArray[np.floating[Any]], NDArray[np.int32]]:
        """Return (scores, ids): the choice is the id with the largest score, of equal ones the lowest id."""
        if self._filters is None:
            return logits, every_token(len(logits))
        ids, left = self._filters.apply(logits, position)
        return self._scored(ids, left, position), ids

    def _scored(
        self, ids: NDArray[np.int32], left: NDArray[np.float32], position: int
    ) -> NDArray[np.floating[Any]]:
        return left if self._is_greedy else left + gumbel(self._parameters.seed, position, ids)

    def accept(self, token: int) -> None:
        """Append `token` to the tokens accepted so far."""
        if self._filters is not None and self._n_remembered:
            self._filters.accept(token)

    def rewind(self, history: Sequence[int]) -> None:
        """Replace the tokens accepted so far by `history`."""
        if self._filters is None or not self._n_remembered:
            return
        self._filters.reset()
        for token in history[-self._n_remembered :]:
            self._filters.accept(token)


def needs_filters(parameters: SamplingParameters) -> bool:
    """Return whether the choice may differ from the argmax of the logits.

    At temperature 0 top-k, top-p, min-p and top-n-sigma keep the most likely token; other filters may remove
    it.
    """
    return (
        not parameters.is_greedy
        or "typ_p" in parameters.active_samplers
        or "xtc" in parameters.active_samplers
        or bool(parameters.logit_bias)
        or parameters.ignore_eos
        or parameters.n_remembered > 0
    )


def rank_scores(scores: NDArray[np.floating[Any]], ids: NDArray[np.int32], n: int) -> list[RankedToken]:
    """Return the `n` tokens with the highest scores, best first; of equal scores the lowest id
    comes first.
    """
    ascending = ids is every_token(len(scores))
    top = top_k(scores, n) if ascending else np.lexsort((ids, -scores))[:n]
    # 32 bits are enough for a hint, and exp is several times as fast.
    weights = (scores - scores[top[0]]).astype(np.float32, copy=False)
    total = float(np.exp(weights, out=weights).sum())
    return [RankedToken(int(ids[i]), float(weights[i]) / total) for i in top]


@functools.lru_cache(maxsize=8)
def every_token(n_vocab: int) -> NDArray[np.int32]:
    """Return the ids of a whole vocabulary, ascending; always the same read-only array."""
    ids = np.arange(n_vocab, dtype=np.int32)
    ids.flags.writeable = False
    return ids


def coupled_choice(
    ids: NDArray[np.int32], scaled_logits: NDArray[np.float32], seed: int, position: int
) -> int:
    """Return the Gumbel-max choice under the shared noise. scaled_logits: already divided by the
    temperature.
    """
    if len(ids) == 1:
        return int(ids[0])
    if len(ids) > _FEW and ids is every_token(len(ids)):
        ids = _rivals(scaled_logits, seed, position)
        scaled_logits = scaled_logits[ids]
    return int(ids[(scaled_logits + gumbel(seed, position, ids)).argmax()])


def _rivals(scaled_logits: NDArray[np.float32], seed: int, position: int) -> NDArray[np.int32]:
    """Return ids that include the token with the largest sum of logit and noise; ascending, with duplicates.

    best: the largest sum among the tokens with the largest logits. Any other token needs noise of at least
    best - ceiling, where ceiling is the largest logit among these other tokens.
    """
    n = len(scaled_logits)
    favorites, ceiling = candidates_for_top_k(scaled_logits, _N_FAVOURITES)
    if len(favorites) > 8 * _N_FAVOURITES:  # many equal logits
        favorites, ceiling = favorites[:_N_FAVOURITES], float(scaled_logits.max())
    if len(favorites) < _N_FAVOURITES:  # NaNs
        return every_token(n)
    best = float((scaled_logits[favorites] + gumbel(seed, position, favorites)).max())
    if not math.isfinite(best - ceiling):
        return every_token(n)
    rivals = np.concatenate((favorites, exceeding(seed, position, n, best - ceiling)))
    rivals.sort()
    return rivals.astype(np.int32)


def likeliest(ids: NDArray[np.int32], logits: NDArray[np.floating[Any]]) -> int:
    """Return the candidate with the largest logit; of equal logits the lowest id, as with a plain argmax.

    The filters may reorder the candidates, so numpy's argmax alone would not do.
    """
    if ids is every_token(len(ids)):
        return int(logits.argmax())
    return int(ids[logits == logits.max()].min())
