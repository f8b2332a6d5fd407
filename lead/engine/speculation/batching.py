"""How draft tokens of several sequences share a step: the likeliest first, or equally many of each."""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import accumulate, zip_longest
from typing import Protocol

from lead.engine.speculation.policy import Candidate
from lead.engine.speculation.step_cost import StepCost

Survivals = Sequence[float]
"""For each draft token of a sequence, the probability that it and all before it are accepted."""


class Batching(Protocol):
    """A batch grows in units: of one draft token, or of one for each sequence."""

    @abstractmethod
    def unit(self, n_sequences: int) -> int:
        """Draft tokens in one unit."""

    def seconds(
        self,
        candidates: Sequence[Candidate],
        drafts: Sequence[Survivals],  # noqa: ARG002 - for `Replaying`
        n_prompt: int,
        cost: StepCost,
        max_units: int,
    ) -> list[float]:
        """How long a step with 0, 1, … up to `max_units` units takes, beside `n_prompt` tokens of prompts."""
        n_base, unit = sum(each.n_fed for each in candidates) + n_prompt, self.unit(len(candidates))
        return [cost.seconds(n_base + n * unit) for n in range(max_units + 1)]

    @abstractmethod
    def max_units(self, lengths: Sequence[int], max_tokens: int) -> int:
        """Units that drafts of these lengths fill, with at most `max_tokens` tokens together."""

    @abstractmethod
    def expected(self, drafts: Sequence[Survivals], n_units: int) -> list[float]:
        """Expected tokens of a step with 0, 1, … up to `n_units` units, or as many as there are."""

    @abstractmethod
    def depths(self, drafts: Sequence[Survivals], n_units: int) -> tuple[int, ...]:
        """How many draft tokens of each sequence are in the batch."""


class LikeliestFirst(Batching):
    """Any number of draft tokens for each sequence."""

    def unit(self, _n_sequences: int) -> int:
        return 1

    def max_units(self, lengths: Sequence[int], max_tokens: int) -> int:
        return min(sum(lengths), max_tokens)

    def expected(self, drafts: Sequence[Survivals], n_units: int) -> list[float]:
        if len(drafts) == 1:
            survivals = drafts[0]
        else:
            survivals = sorted((s for draft in drafts for s in draft), reverse=True)
        return list(accumulate(survivals[:n_units], initial=float(len(drafts))))

    def depths(self, drafts: Sequence[Survivals], n_units: int) -> tuple[int, ...]:
        if len(drafts) == 1:
            return (n_units,)
        ranked = sorted(
            ((survival, i) for i, draft in enumerate(drafts) for survival in draft), key=lambda pair: -pair[0]
        )
        taken = [i for _, i in ranked[:n_units]]
        return tuple(taken.count(i) for i in range(len(drafts)))


class EqualDepths(Batching):
    """The same depth for all, where llama.cpp would decode spans of different lengths in several passes.

    For a sequence with a shorter draft, padding tokens are decoded (`shared.llama.span`).
    """

    def unit(self, n_sequences: int) -> int:
        return n_sequences

    def max_units(self, lengths: Sequence[int], max_tokens: int) -> int:
        return min(max(lengths), max_tokens // len(lengths))

    def expected(self, drafts: Sequence[Survivals], n_units: int) -> list[float]:
        columns = [sum(column) for column in zip_longest(*drafts, fillvalue=0.0)]
        return list(accumulate(columns[:n_units], initial=float(len(drafts))))

    def depths(self, drafts: Sequence[Survivals], n_units: int) -> tuple[int, ...]:
        return tuple(min(len(draft), n_units) for draft in drafts)
