"""The batches that a step with drafts may have.

How draft tokens of several sequences share a step depends on the memory of the model: the likeliest tokens
first, or as in `memory_batching`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate, chain

from lead.engine.speculation.constants import MAX_DEPTH
from lead.engine.speculation.drafts import Probabilities
from lead.engine.speculation.forecast import Candidate
from shared.step_cost import StepCost


class StepWidths:
    """In how many tokens a step is decoded: here in as many as it has; see `widths`."""

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost

    def seconds(self, sizes: range) -> list[float]:
        """What the next step takes with each of these sizes; without drafts it has sizes[0] tokens."""
        return list(map(self._cost.seconds, sizes))

    def width(self, n_tokens: int, n_draft: int) -> int:  # noqa: ARG002 - for others
        """In how many tokens a step of `n_tokens` is decoded, `n_draft` of which are drafts."""
        return n_tokens

    def learn(self, base: int, yields: Sequence[float], rate: float) -> None:
        """The next step would yield yields[n] tokens with `base` + n tokens; a second is worth `rate`.

        What the engine takes to draft them is deducted.
        """


class Batching(ABC):
    """The batches that a step may have, from the one without drafts on: of these `sizes`, in tokens."""

    def __init__(self, cost: StepCost | None = None, widths: StepWidths | None = None) -> None:
        """widths: with the same `cost`."""
        self.cost = cost or StepCost()
        self.widths = widths or StepWidths(self.cost)

    @abstractmethod
    def sizes(self, n_base: int, lengths: Sequence[int]) -> range:
        """Up to that of drafts of these lengths; `n_base` tokens are in any case."""

    def seconds(
        self,
        sizes: range,
        candidates: Sequence[Candidate],  # noqa: ARG002 - for `Replaying`
        n_prompt: int,
    ) -> list[float]:
        """Seconds of a step with each of the sizes, which count `n_prompt` tokens of prompts."""
        return list(map(self.cost.seconds, sizes)) if n_prompt else self.widths.seconds(sizes)

    @abstractmethod
    def expected(self, drafts: Sequence[Probabilities], n: int) -> list[float]:
        """Expected tokens of steps with sizes[0] to sizes[n] tokens, as far as there are drafts for these."""

    @abstractmethod
    def depths(self, drafts: Sequence[Probabilities], n: int) -> tuple[int, ...]:
        """Draft tokens of each sequence in a batch of sizes[n] tokens."""


class LikeliestFirst(Batching):
    """Any number of draft tokens for each sequence."""

    def sizes(self, n_base: int, lengths: Sequence[int]) -> range:
        return range(n_base, n_base + min(sum(lengths), MAX_DEPTH) + 1)

    def expected(self, drafts: Sequence[Probabilities], n: int) -> list[float]:
        likeliest = drafts[0] if len(drafts) == 1 else sorted(chain.from_iterable(drafts), reverse=True)
        return list(accumulate(likeliest[:n], initial=float(len(drafts))))

    def depths(self, drafts: Sequence[Probabilities], n: int) -> tuple[int, ...]:
        if len(drafts) == 1:
            return (n,)
        ranked = sorted(
            ((each, i) for i, draft in enumerate(drafts) for each in draft), key=lambda pair: -pair[0]
        )
        taken = [i for _, i in ranked[:n]]
        return tuple(taken.count(i) for i in range(len(drafts)))
