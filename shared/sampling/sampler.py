"""How lead and backs choose the next token: llama.cpp's filters, then the coupled choice.

The choice is an exact sample of the filtered distribution, and a function of seed, position and logits alone.
So the text depends on seed, prompt and target model only. The shared noise must never be combined with a
`u < p/q` acceptance test: that is biased.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shared.sampling.coupled_choice import RankedToken, coupled_choice, every_token, likeliest, rank_scores
from shared.sampling.noise import gumbel
from shared.sampling.parameters import SamplingParameters


class Filters(Protocol):
    """Narrows the candidates as llama.cpp's sampler chain does (`shared.sampling.filters.NativeFilters`)."""

    def apply(
        self, logits: NDArray[np.float32], position: int, among: NDArray[np.int32] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """(ids, logits) of the remaining candidates of `among`, or of all tokens; at least one.

        Several logits are divided by the temperature; a single one may not be. Valid until the next call.
        If all tokens remain, in ascending order, the ids are `every_token(n_vocab)` itself: the choice is
        faster then.
        """

    def likeliest(self, logits: NDArray[np.float32]) -> int | None:
        """The choice at temperature 0; None: it takes `apply` to tell."""

    def accept(self, token: int) -> None:
        """Record a token, for penalties."""

    def reset(self) -> None:
        """Forget all tokens."""


class Sampler:
    """Chooses the tokens of one sequence.

    `accept` each token in order, and `rewind` when accepted tokens turn out not to be part of the sequence.
    """

    def __init__(
        self, parameters: SamplingParameters, filters: Filters | None, history: Sequence[int]
    ) -> None:
        """filters: None where `needs_filters` is False. history: all tokens so far."""
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
        """The token at absolute `position`; logits: shape (n_vocab,), not modified."""
        if self._filters is None:
            return int(logits.argmax())
        if self._is_greedy and (token := self._filters.likeliest(logits)) is not None:
            return token
        ids, left = self._filters.apply(logits, position)
        return self._choose_from(ids, left, position)

    def rank(self, logits: NDArray[np.float32], position: int, n: int) -> list[RankedToken]:
        """Up to `n` candidates at absolute `position`, best first; the first one is what `choose` returns.

        Under the shared noise the runners-up are what a model with slightly different logits would choose.
        """
        return rank_scores(*self._scores(logits, position), n)

    def distribution(
        self, logits: NDArray[np.float32], position: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """(ids, probabilities) of the candidates that the filters leave at absolute `position`."""
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
        """(scores, ids): the choice is the id with the largest score, of equal ones the lowest id."""
        if self._filters is None:
            return logits, every_token(len(logits))
        ids, left = self._filters.apply(logits, position)
        return self._scored(ids, left, position), ids

    def _scored(
        self, ids: NDArray[np.int32], left: NDArray[np.float32], position: int
    ) -> NDArray[np.floating[Any]]:
        return left if self._is_greedy else left + gumbel(self._parameters.seed, position, ids)

    def accept(self, token: int) -> None:
        """`token` follows the tokens accepted so far."""
        if self._filters is not None and self._n_remembered:
            self._filters.accept(token)

    def rewind(self, history: Sequence[int]) -> None:
        """Reset the tokens so far to `history`."""
        if self._filters is None or not self._n_remembered:
            return
        self._filters.reset()
        for token in history[-self._n_remembered :]:
            self._filters.accept(token)


def needs_filters(parameters: SamplingParameters) -> bool:
    """False where the choice is the plain argmax of the logits.

    At temperature 0 top-k, top-p, min-p and top-n-sigma never remove the most likely token; others may.
    """
    return (
        not parameters.is_greedy
        or "typ_p" in parameters.active_samplers
        or "xtc" in parameters.active_samplers
        or bool(parameters.logit_bias)
        or parameters.ignore_eos
        or parameters.n_remembered > 0
    )
