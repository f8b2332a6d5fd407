"""Choosing under a grammar.

As llama-server does it: the token is chosen as if there were no grammar, and if the grammar has it next, it
is taken; otherwise the choice is made once more among all tokens that the grammar allows, filters and noise
being the same. So the choice is still a function of seed, position, logits and the tokens before it, and
asking the grammar about a whole vocabulary, which is slow, is the exception. Without filters it is an exact
sample of what the model thinks of the allowed tokens. (llama-server draws anew for the second try.)
"""

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from shared.sampling.sampler import (
    Choice,
    Filters,
    Sampler,
    SamplingParameters,
    likeliest,
    rank_scores,
)


class Constraint(Protocol):
    """The seam to a grammar (`shared.llama.grammar.GrammarMatcher`): how far a text has come in it."""

    def allows(self, token: int) -> bool:
        """Whether `token` may come next."""

    def allowed(self) -> NDArray[np.int32]:
        """The ids of all tokens that may come next, ascending."""

    def accept(self, token: int) -> bool:
        """`token` comes next; False, and nothing is changed, where it may not, or ends the text."""

    def rollback(self, n: int) -> None:
        """Take back the last `n` tokens accepted."""

    def copy(self) -> Self:
        """Another at the same place."""


class RestrictableFilters(Filters, Protocol):
    """Filters that can begin with less than all tokens."""

    def apply(
        self, logits: NDArray[np.float32], position: int, among: NDArray[np.int32] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """As `Filters.apply`, of the tokens in `among` if it is given."""


class ConstrainedSampler(Sampler):
    """A sampler under a grammar, which is about the tokens from `parameters.grammar_start` on."""

    def __init__(
        self,
        parameters: SamplingParameters,
        filters: RestrictableFilters | None,
        history: Sequence[int],
        beginning: "Constraint | ConstrainedSampler",
        end_token: int,
    ) -> None:
        """`beginning`: the grammar before any text, or a sampler of the same one whose text begins alike.

        Where the grammar has nothing next, `end_token` is chosen.
        """
        self._restrictable = filters
        self._end_token = end_token
        self._start = parameters.grammar_start
        self._taken: list[int] = []
        if isinstance(beginning, ConstrainedSampler):
            self._taken, beginning = list(beginning._taken), beginning._constraint  # noqa: SLF001 - one of us
        self._constraint: Constraint = beginning.copy()
        self._is_over = False  # a token came that the grammar does not have: it has nothing more to say
        super().__init__(parameters, filters, history)

    def choose(self, logits: NDArray[np.float32], position: int) -> int:
        """As `Sampler.choose`, among what the grammar allows."""
        token = super().choose(logits, position)
        if self._is_over or self._constraint.allows(token):
            return token
        scores, ids = self._allowed_scores(logits, position)
        return likeliest(ids, scores)

    def rank(self, logits: NDArray[np.float32], position: int, n: int) -> list[Choice]:
        """As `Sampler.rank`, among what the grammar allows."""
        choices = super().rank(logits, position, n)
        if self._is_over:
            return choices
        if self._constraint.allows(choices[0].token):
            return [choice for choice in choices if self._constraint.allows(choice.token)]
        return rank_scores(*self._allowed_scores(logits, position), n)

    def _allowed_scores(
        self, logits: NDArray[np.float32], position: int
    ) -> tuple[NDArray[np.floating[Any]], NDArray[np.int32]]:
        """(scores, ids) of what the filters leave of the allowed tokens."""
        ids = self._constraint.allowed()
        if not len(ids):
            return np.zeros(1), np.array([self._end_token], np.int32)
        if self._restrictable is None:
            return logits[ids], ids
        ids, left = self._restrictable.apply(logits, position, ids)
        return self._scored(ids, left, position), ids

    def accept(self, token: int) -> None:
        """`token` follows the tokens accepted so far."""
        super().accept(token)
        self._advance(token)

    def rewind(self, history: Sequence[int]) -> None:
        """The tokens so far are `history` and nothing else."""
        super().rewind(history)
        tokens = history[self._start :]
        n = _n_common(self._taken, tokens)
        if n == len(self._taken) == len(tokens) and not self._is_over:
            return
        self._constraint.rollback(len(self._taken) - n)
        del self._taken[n:]
        self._is_over = False
        for token in tokens[n:]:
            self._advance(token)

    def _advance(self, token: int) -> None:
        if self._is_over:
            return
        if self._constraint.accept(token):
            self._taken.append(token)
        else:
            self._is_over = True


def _n_common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
