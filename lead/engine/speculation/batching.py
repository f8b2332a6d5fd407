"""The possible batches of a step with drafts.

The memory of the model decides how draft tokens of several sequences share a step: the likeliest tokens
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
    """The batch size of a step. In this class it is the number of tokens; `Widths` may pad it."""

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost

    def seconds(self, sizes: range) -> list[float]:
        """Return T(n) of the next step for each of these sizes; sizes[0] is the step without drafts."""
        return list(map(self._cost.seconds, sizes))

    def width(self, n_tokens: int, n_draft: int) -> int:  # noqa: ARG002 - for others
        """Return the batch size for a step of `n_tokens` tokens, of which `n_draft` are draft tokens."""
        return n_tokens

    def learn(self, base: int, yields: Sequence[float], rate: float) -> None:
        """Record that the next step would yield yields[n] tokens if it had `base` + n tokens.

        Yields are net of the engine's time for drafting. rate: the value of a second, in tokens.
        """


class Batching(ABC):
    """The possible batches of a step: `sizes` in tokens, starting with the batch without drafts."""

    def __init__(self, cost: StepCost | None = None, widths: StepWidths | None = None) -> None:
        """`widths` must use the same `cost`."""
        self.cost = cost or StepCost()
        self.widths = widths or StepWidths(self.cost)

    @abstractmethod
    def sizes(self, n_base: int, lengths: Sequence[int]) -> range:
        """Return the possible sizes with drafts of up to these lengths. Every batch has `n_base` other
        tokens.
        """

    def seconds(
        self,
        sizes: range,
        candidates: Sequence[Candidate],  # noqa: ARG002 - for `Replaying`
        n_prompt: int,
    ) -> list[float]:
        """Return T(n) of a step for each of the sizes, which include `n_prompt` prompt tokens."""
        return list(map(self.cost.seconds, sizes)) if n_prompt else self.widths.seconds(sizes)

    @abstractmethod
    def expected(self, drafts: Sequence[Probabilities], n: int) -> list[float]:
        """Return the expected tokens of steps of sizes[0], …, sizes[n] tokens.

        The list is shorter if the drafts have too few tokens for the last sizes.
        """

    @abstractmethod
    def depths(self, drafts: Sequence[Probabilities], n: int) -> tuple[int, ...]:
        """Return the number of draft tokens of each sequence in a batch of sizes[n] tokens."""


class LikeliestFirst(Batching):
    """Batches with any number of draft tokens for each sequence, the likeliest tokens first."""

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
