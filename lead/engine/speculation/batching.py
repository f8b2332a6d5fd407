"""How draft tokens of several sequences share a step, which depends on the memory of the model.

The likeliest tokens first, or equally many of each sequence; and how long such steps take.
"""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import accumulate, pairwise, repeat, zip_longest
from typing import Protocol

from lead.engine.engine_limits import EngineLimits
from lead.engine.speculation.policy import Candidate
from lead.engine.speculation.step_cost import StepCost

Survivals = Sequence[float]
"""For each draft token of a sequence, the probability that it and all before it are accepted."""


class Batching(Protocol):
    """The draft tokens of a step are added in units: one token, or one for each sequence."""

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
        """How long a step with 0, 1, … up to `max_units` units takes, with `n_prompt` tokens of prompts."""
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


class Replaying(EqualDepths):
    """For recurrent models without rollback, which decode what was accepted of a rejected draft again.

    Such a model returns to the state before the draft (`shared.llama.slot_parts`). What was accepted is
    replayed together with the next draft, so a rejection makes the next step wider. Depths are equal, but
    without padding, which would be a rejected draft token of each sequence: spans may have unequal lengths,
    and llama.cpp decodes them in several passes.
    """

    def seconds(
        self,
        candidates: Sequence[Candidate],
        drafts: Sequence[Survivals],
        n_prompt: int,
        cost: StepCost,
        max_units: int,
    ) -> list[float]:
        replays = [
            self._replay_seconds(*each, cost, max_units) for each in zip(candidates, drafts, strict=True)
        ]
        return [
            self._step_seconds(candidates, drafts, n_prompt, cost, depth)
            + sum(replay[depth] for replay in replays)
            for depth in range(max_units + 1)
        ]

    def _step_seconds(
        self,
        candidates: Sequence[Candidate],
        drafts: Sequence[Survivals],
        n_prompt: int,
        cost: StepCost,
        depth: int,
    ) -> float:
        """The time of all passes; the first has as many tokens of each span as the shortest, and so on."""
        if len(candidates) == 1:
            return cost.seconds(candidates[0].n_fed + depth + n_prompt)
        lengths = sorted(
            candidate.n_fed + (min(depth, len(draft)) if draft else depth)
            for candidate, draft in zip(candidates, drafts, strict=True)
        )
        if n_prompt:
            lengths.append(lengths[-1] + n_prompt)
        batch_sizes = [
            (longer - shorter) * (len(lengths) - i)
            for i, (shorter, longer) in enumerate(pairwise([0, *lengths]))
            if longer > shorter
        ]
        return sum(cost.seconds(size) for size in batch_sizes)

    def _replay_seconds(
        self, candidate: Candidate, draft: Survivals, cost: StepCost, max_units: int
    ) -> list[float]:
        """By depth: how much longer the next step is expected to take for what it replays.

        If the draft is rejected after a accepted tokens, they and the `n_fed` before them are replayed.
        """
        plain, seconds, result = cost.seconds(1), 0.0, [0.0]
        survivals = [1.0, *_extended(draft, max_units)]
        for n_accepted, (before, after) in enumerate(pairwise(survivals)):
            n_replayed = candidate.n_fed + n_accepted
            seconds += (before - after) * max(0.0, cost.seconds(1 + n_replayed) - plain)
            result.append(seconds)
        return result


def batching_for(limits: EngineLimits) -> Batching:
    """What suits the memory of the model."""
    if limits.traits.replays:
        return Replaying()
    return EqualDepths() if limits.pads else LikeliestFirst()


def _extended(draft: Survivals, n: int) -> list[float]:
    """`draft` as if its last token were followed by others of the same probability."""
    known = list(draft[:n])
    ratio = known[-1] / known[-2] if len(known) > 1 else (known[0] if known else 1.0)
    for _ in repeat(None, n - len(known)):
        known.append((known[-1] if known else 1.0) * ratio)
    return known
