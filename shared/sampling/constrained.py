"""Chooses a token under a grammar.

As in llama-server, a token is first chosen without the grammar and used if the grammar allows it. Otherwise
the choice is repeated among all tokens that the grammar allows, with the same filters and the same noise
(llama-server draws new random numbers). So the choice remains a function of seed, position, logits and
previous tokens, and a mask over the whole vocabulary is rarely computed.
"""

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import Filters, RankedToken, Sampler, likeliest, rank_scores
from shared.slot_cache import common_prefix_length


class Constraint(Protocol):
    """The state of a grammar at some point of a text (`shared.sampling.remote_grammar.RemoteGrammar`).

    `allows` and `allowed` may raise PendingAnswerError: call again later with the same arguments.
    """

    @property
    def is_ready(self) -> bool:
        """True if the last call can be repeated without a PendingAnswerError."""

    def allows(self, tokens: Sequence[int]) -> list[bool]:
        """Return, for each of `tokens`, whether it may come next; all True once the grammar no longer
        applies.
        """

    def allowed(self) -> NDArray[np.int32]:
        """Return the ids of all tokens that may come next, ascending; only while the grammar applies."""

    def accept(self, token: int) -> None:
        """Advance by `token`. If it may not come next, the grammar no longer applies."""

    def rollback(self, n: int) -> None:
        """Remove the last `n` accepted tokens."""

    def copy(self) -> Self:
        """Return an independent copy, at the same point."""


class ConstrainedSampler(Sampler):
    """A sampler under a grammar that applies to the tokens from `parameters.grammar_start` on."""

    def __init__(
        self,
        parameters: SamplingParameters,
        filters: Filters | None,
        history: Sequence[int],
        beginning: "Constraint | ConstrainedSampler",
        end_token: int,
    ) -> None:
        """beginning: the grammar before any text, or a sampler with the same grammar and a common prefix.

        end_token: chosen where the grammar allows no token.
        """
        self._end_token = end_token
        self._start = parameters.grammar_start
        self._taken: list[int] = []
        if isinstance(beginning, ConstrainedSampler):
            self._taken, beginning = list(beginning._taken), beginning._constraint  # noqa: SLF001 - of the same class
        self._constraint: Constraint = beginning.copy()
        super().__init__(parameters, filters, history)

    @property
    def is_ready(self) -> bool:
        """False while `choose` would raise PendingAnswerError."""
        return self._constraint.is_ready

    def choose(self, logits: NDArray[np.float32], position: int) -> int:
        """Choose like `Sampler.choose`, among the tokens that the grammar allows.

        After a PendingAnswerError nothing has changed.
        """
        token = super().choose(logits, position)
        if self._constraint.allows([token])[0]:
            return token
        scores, ids = self._allowed_scores(logits, position)
        return likeliest(ids, scores)

    def rank(self, logits: NDArray[np.float32], position: int, n: int) -> list[RankedToken]:
        """Rank like `Sampler.rank`, among the tokens that the grammar allows; see `choose`."""
        choices = super().rank(logits, position, n)
        allows = self._constraint.allows([choice.token for choice in choices])
        if allows[0]:
            return [choice for choice, allowed in zip(choices, allows, strict=True) if allowed]
        return rank_scores(*self._allowed_scores(logits, position), n)

    def _allowed_scores(
        self, logits: NDArray[np.float32], position: int
    ) -> tuple[NDArray[np.floating[Any]], NDArray[np.int32]]:
        """Return (scores, ids) of the allowed tokens that the filters leave."""
        ids = self._constraint.allowed()
        if not len(ids):
            return np.zeros(1), np.array([self._end_token], np.int32)
        if self._filters is None:
            return logits[ids], ids
        ids, left = self._filters.apply(logits, position, ids)
        return self._scored(ids, left, position), ids

    def accept(self, token: int) -> None:
        super().accept(token)
        self._advance(token)

    def rewind(self, history: Sequence[int]) -> None:
        super().rewind(history)
        tokens = history[self._start :]
        n = common_prefix_length(self._taken, tokens)
        self._constraint.rollback(len(self._taken) - n)
        del self._taken[n:]
        for token in tokens[n:]:
            self._advance(token)

    def _advance(self, token: int) -> None:
        self._constraint.accept(token)
        self._taken.append(token)
