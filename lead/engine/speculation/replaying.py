"""Depths for recurrent models without rollback, which decode what was accepted of a rejected draft again.

Such a model returns to the state before the draft (`shared.llama.slot_parts`). What was accepted is
replayed together with the next draft, so a rejection makes the next step wider.
"""

from collections.abc import Sequence
from itertools import pairwise, repeat

from lead.engine.engine_limits import EngineLimits
from lead.engine.speculation.batching import Batching, EqualDepths, LikeliestFirst, Survivals
from lead.engine.speculation.policy import Candidate
from lead.engine.speculation.step_cost import StepCost


class Replaying(EqualDepths):
    """Equal depths without padding, which would be a rejected draft token of each sequence.

    So spans may have unequal lengths, and llama.cpp decodes them in several passes.
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
        """Of all passes: the first has as many tokens of each span as the shortest span, and so on."""
        if len(candidates) == 1:
            return cost.seconds(candidates[0].n_fed + depth + n_prompt)
        lengths = sorted(
            candidate.n_fed + (min(depth, len(draft)) if draft else depth)
            for candidate, draft in zip(candidates, drafts, strict=True)
        )
        if n_prompt:
            lengths.append(lengths[-1] + n_prompt)
        widths = [
            (longer - shorter) * (len(lengths) - i)
            for i, (shorter, longer) in enumerate(pairwise([0, *lengths]))
            if longer > shorter
        ]
        return sum(cost.seconds(width) for width in widths)

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
