"""The possible batches of a step with drafts.

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
    """The batch size in which a step is decoded: here the number of its tokens; see `widths`."""

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost

    def seconds(self, sizes: range) -> list[float]:
        """Seconds of the next step for each of these sizes; without drafts it has sizes[0] tokens."""
        return list(map(self._cost.seconds, sizes))

    def width(self, n_tokens: int, n_draft: int) -> int:  # noqa: ARG002 - for others
        """The batch size for a step of `n_tokens`, of which `n_draft` are drafts."""
        return n_tokens

    def learn(self, base: int, yields: Sequence[float], rate: float) -> None:
        """Learn that the next step would yield yields[n] tokens if it had `base` + n tokens; `rate`: tokens
        that a second is worth.

        The yields are net of the engine's time for drafting.
        """


class Batching(ABC):
    """The possible batches of a step, as `sizes` in tokens, from that without drafts on."""

    def __init__(self, cost: StepCost | None = None, widths: StepWidths | None = None) -> None:
        """widths: with the same `cost`."""
        self.cost = cost or StepCost()
        self.widths = widths or StepWidths(self.cost)

    @abstractmethod
    def sizes(self, n_base: int, lengths: Sequence[int]) -> range:
        """The possible sizes with drafts of up to these lengths; every batch has the `n_base` tokens."""

    def seconds(
        self,
        sizes: range,
        candidates: Sequence[Candidate],  # noqa: ARG002 - for `Replaying`
        n_prompt: int,
    ) -> list[float]:
        """Seconds of a step with each of the sizes, which include `n_prompt` tokens of prompts."""
        return list(map(self.cost.seconds, sizes)) if n_prompt else self.widths.seconds(sizes)

    @abstractmethod
    def expected(self, drafts: Sequence[Probabilities], n: int) -> list[float]:
        """Expected tokens of steps with sizes[0] to sizes[n] tokens; fewer if there are not enough drafts."""

    @abstractmethod
    def depths(self, drafts: Sequence[Probabilities], n: int) -> tuple[int, ...]:
        """The number of draft tokens of each sequence in a batch of sizes[n] tokens."""


class LikeliestFirst(Batching):
    """Batches with any number of draft tokens for each sequence: the likeliest tokens first."""

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
