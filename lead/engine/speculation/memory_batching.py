"""Batches for models whose memory needs spans of equal length, or needs accepted tokens to be replayed."""

from collections.abc import Sequence
from itertools import accumulate, pairwise, repeat, zip_longest

from lead.engine.engine_limits import EngineLimits
from lead.engine.speculation.batching import Batching, LikeliestFirst
from lead.engine.speculation.constants import MAX_DEPTH
from lead.engine.speculation.drafts import Probabilities
from lead.engine.speculation.forecast import Candidate
from lead.engine.speculation.widths import Widths
from shared.step_cost import StepCost


class EqualDepths(Batching):
    """Batches with the same depth for all sequences.

    llama.cpp would decode spans of different lengths in several passes. A sequence with a shorter draft gets
    padding tokens (`shared.llama.span`).
    """

    def sizes(self, n_base: int, lengths: Sequence[int]) -> range:
        n_sequences = len(lengths)
        n_draft = n_sequences * min(max(lengths), MAX_DEPTH // n_sequences)
        return range(n_base, n_base + n_draft + 1, n_sequences)

    def expected(self, drafts: Sequence[Probabilities], n: int) -> list[float]:
        columns = [sum(column) for column in zip_longest(*drafts, fillvalue=0.0)]
        return list(accumulate(columns[:n], initial=float(len(drafts))))

    def depths(self, drafts: Sequence[Probabilities], n: int) -> tuple[int, ...]:
        return tuple(min(len(draft), n) for draft in drafts)


class Replaying(EqualDepths):
    """Batches for recurrent models that cannot roll back, but decode accepted tokens again after a rejection.

    Such a model returns to the state before the draft (`shared.llama.slot_parts`). Accepted tokens are
    replayed together with the next draft, so a rejection makes the next step larger. Depths are equal, but
    shorter drafts are not padded, as padding would be a rejected draft token. So spans may have unequal
    lengths, which llama.cpp decodes in several passes.
    """

    def seconds(self, sizes: range, candidates: Sequence[Candidate], n_prompt: int) -> list[float]:
        max_depth = len(sizes) - 1
        replays = [self._replay_seconds(each, max_depth) for each in candidates]
        return [
            self._step_seconds(candidates, n_prompt, depth) + sum(replay[depth] for replay in replays)
            for depth in range(max_depth + 1)
        ]

    def _step_seconds(self, candidates: Sequence[Candidate], n_prompt: int, depth: int) -> float:
        """Return the time of all passes.

        The first pass decodes as many tokens of each span as the shortest span has.
        """
        if len(candidates) == 1:
            return self.cost.seconds(candidates[0].n_fed + depth + n_prompt)
        lengths = sorted(
            each.n_fed + (min(depth, len(each.chain)) if each.chain else depth) for each in candidates
        )
        if n_prompt:
            lengths.append(lengths[-1] + n_prompt)
        batch_sizes = [
            (longer - shorter) * (len(lengths) - i)
            for i, (shorter, longer) in enumerate(pairwise([0, *lengths]))
            if longer > shorter
        ]
        return sum(map(self.cost.seconds, batch_sizes))

    def _replay_seconds(self, candidate: Candidate, max_depth: int) -> list[float]:
        """Return, by depth, the expected additional seconds of the next step for tokens that it replays.

        If the draft is rejected after n accepted tokens, the `n_fed` tokens before it and the n tokens are
        replayed.
        """
        plain, seconds, result = self.cost.seconds(1), 0.0, [0.0]
        probabilities = [1.0, *_extended(candidate.probabilities, max_depth)]
        for n_accepted, (before, after) in enumerate(pairwise(probabilities)):
            n_replayed = candidate.n_fed + n_accepted
            seconds += (before - after) * max(0.0, self.cost.seconds(1 + n_replayed) - plain)
            result.append(seconds)
        return result


def batching_for(limits: EngineLimits, cost: StepCost | None = None) -> Batching:
    """Return the kind of batches that fits the memory of the model."""
    cost = cost or StepCost()
    if limits.traits.replays:
        return Replaying(cost)
    if limits.pads:
        return EqualDepths(cost, Widths(cost))
    may_pad = limits.traits.can_trim and not limits.splits_lengths and limits.batch_sizes is None
    return LikeliestFirst(cost, Widths(cost, pads=may_pad))


def _extended(draft: Probabilities, n: int) -> list[float]:
    """Return `draft` extended to `n` values, which continue the ratio of the last two."""
    known = list(draft[:n])
    ratio = known[-1] / known[-2] if len(known) > 1 else (known[0] if known else 1.0)
    for _ in repeat(None, n - len(known)):
        known.append((known[-1] if known else 1.0) * ratio)
    return known
