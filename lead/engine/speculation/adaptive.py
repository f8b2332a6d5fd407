"""The adaptive policy: the most expected tokens for the time they take, over all sequences together."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, repeat
from operator import mul

from lead.engine.speculation.batching import Batching, LikeliestFirst, Survivals
from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants
from lead.engine.speculation.draft_chain import MAX_DEPTH
from lead.engine.speculation.inline_value import InlineValue
from lead.engine.speculation.policy import Candidate, DepthChoice, ExpectedDraft, expected_tokens
from lead.engine.speculation.speedup import SpeedupEstimate
from lead.engine.speculation.step_cost import StepCost

_MIN_WAIT_S = 0.0005
"""The shortest wait: the pipe cannot wait more precisely. Anything that arrives ends it."""
_EPSILON = 1e-9
"""Rates that differ by less are equal."""


class Adaptive:
    """A choice is worth (expected tokens) - rate * (T(tokens in the batch) + wait).

    Expected tokens are the number of sequences + Σ survival of the draft tokens taken; a token's survival is
    the product of the probabilities up to it. `rate` is what a second is worth: see `_rate`. Waiting is for
    draft tokens that are on their way; while prompts are being processed there is something better to do.
    Drafting in the engine is like waiting, but it is known how long it takes.
    """

    def __init__(self, batching: Batching | None = None, constants: SpeculationConstants = DEFAULTS) -> None:
        self._batching = batching or LikeliestFirst()
        self._constants = constants
        self._n_choices = 0
        self._speedup = SpeedupEstimate(constants)

    def learn(self, n_sequences: int, n_committed: int, seconds: float, cost: StepCost) -> None:
        # No step is faster than one without drafts, even if an early estimate of T suggests it.
        n_plain_steps = max(1.0, seconds / cost.seconds(n_sequences))
        self._speedup.learn(n_committed, n_sequences * n_plain_steps)

    def choose(
        self,
        candidates: Sequence[Candidate],
        n_prompt: int,
        cost: StepCost,
        draft_cost: StepCost | None = None,
    ) -> DepthChoice:
        if not candidates:
            return DepthChoice(())
        drafts = [tuple(accumulate(each.chain.probabilities[: each.n_useful], mul)) for each in candidates]
        batching = self._batching
        n_base, unit = sum(each.n_fed for each in candidates) + n_prompt, batching.unit(len(candidates))
        max_units = batching.max_units(self._lengths(candidates, drafts), MAX_DEPTH)
        seconds = batching.seconds(candidates, drafts, n_prompt, cost, max_units)
        expected = batching.expected(drafts, max_units)
        rate = self._rate(expected, seconds, len(candidates) / cost.seconds(len(candidates) + n_prompt))
        worth, n_units = _best_batch(expected, seconds, rate)
        wait, best = 0.0, worth
        if n_prompt == 0:
            best, wait = self._worthwhile_wait(candidates, drafts, seconds, rate, worth)
        if draft_cost and (offers := {i: each.inline for i, each in enumerate(candidates) if each.inline}):
            value, drafting = InlineValue(batching, seconds, rate, draft_cost).best(offers, drafts)
            if value > best + _EPSILON:
                return DepthChoice((0,) * len(candidates), drafting=drafting)
        if wait:
            return DepthChoice((0,) * len(candidates), wait)
        self._n_choices += 1
        if self._n_choices % self._constants.explore_every == 0:
            old = (
                n
                for n, max_age in self._worth_measuring(n_units, worth, expected, seconds, rate)
                if cost.age(n_base + n * unit) > max_age
            )
            n_units = next(old, n_units)
        depths = batching.depths(drafts, n_units)
        return DepthChoice(depths, n_expected=expected_tokens(candidates, depths))

    def _rate(self, expected: Sequence[float], seconds: Sequence[float], plain_rate: float) -> float:
        """Tokens that a second is worth: what it would yield if it were spent otherwise.

        `plain_rate` is that of steps without drafts. If steps did not depend on each other that were the
        long-run rate (a renewal process). But backs draft while the lead decodes, and good moments and bad
        ones come in runs: so it leans to this moment's.
        """
        rates = (n_tokens / step for n_tokens, step in zip(expected, seconds, strict=False))
        here = max(plain_rate, *rates)
        speedup = self._speedup.value
        if speedup is None:
            return here
        weight = self._constants.long_run_weight
        return weight * speedup * plain_rate + (1 - weight) * here

    def _worthwhile_wait(
        self,
        candidates: Sequence[Candidate],
        drafts: Sequence[Survivals],
        seconds: Sequence[float],
        rate: float,
        worth_now: float,
    ) -> tuple[float, float]:
        """(worth, seconds) of the best wait for tokens on their way; 0 seconds if decoding now is as good."""
        if len(candidates) == 1:
            moments = self._moments_of_one(candidates[0], seconds, rate)
        else:
            moments = self._moments_of_all(candidates, drafts, seconds, rate)
        worth, moment = max(moments, default=(worth_now, 0.0))
        if worth <= worth_now + _EPSILON:
            return worth_now, 0.0
        return worth, max(moment, _MIN_WAIT_S)

    def _moments_of_one(
        self, candidate: Candidate, seconds: Sequence[float], rate: float
    ) -> Iterator[tuple[float, float]]:
        """(worth, wait) for each token on its way, of one sequence alone: the usual case, and quick."""
        for draft in candidate.expected:
            n_here = min(len(draft.probabilities), candidate.n_useful)
            n_end = n_here + self._n_awaited(candidate, draft)
            probabilities = chain(draft.probabilities[:n_here], draft.prospects, repeat(draft.mean))
            survival = expected = 1.0
            best = expected - rate * seconds[0]
            for n, probability in zip(range(1, min(n_end + 1, len(seconds))), probabilities, strict=False):
                survival *= probability
                expected += survival
                best = max(best, expected - rate * seconds[n])
                if n > n_here:
                    moment = draft.arrival.when(n - n_here)
                    yield best - rate * moment, moment

    def _moments_of_all(
        self,
        candidates: Sequence[Candidate],
        drafts: Sequence[Survivals],
        seconds: Sequence[float],
        rate: float,
    ) -> Iterator[tuple[float, float]]:
        """(worth, wait) for each token on its way, of several sequences."""
        moments = {
            draft.arrival.when(n_more)
            for candidate in candidates
            for draft in candidate.expected
            for n_more in range(1, self._n_awaited(candidate, draft) + 1)
        }
        for moment in moments:
            later = [
                self._survivals_at(candidate, draft, moment)
                for candidate, draft in zip(candidates, drafts, strict=True)
            ]
            expected = self._batching.expected(later, len(seconds) - 1)
            yield _best_batch(expected, seconds, rate)[0] - rate * moment, moment

    def _survivals_at(self, candidate: Candidate, now: Survivals, moment: float) -> Survivals:
        """Survival of each token of the best chain that is expected `moment` seconds from now."""
        best, best_sum = now, sum(now)
        for draft in candidate.expected:
            n_awaited = self._n_awaited(candidate, draft)
            n_more = sum(draft.arrival.when(n) <= moment for n in range(1, n_awaited + 1))
            probabilities = (*draft.probabilities, *draft.further(n_more))[: candidate.n_useful]
            longer = tuple(accumulate(probabilities, mul))
            if sum(longer) > best_sum:
                best, best_sum = longer, sum(longer)
        return best

    def _lengths(self, candidates: Sequence[Candidate], drafts: Sequence[Survivals]) -> list[int]:
        """How many draft tokens there can be for each, those on their way included."""
        return [
            max(
                len(draft),
                candidate.inline.n_most if candidate.inline else 0,
                *(self._length(candidate, each) for each in candidate.expected),
            )
            for candidate, draft in zip(candidates, drafts, strict=True)
        ]

    def _length(self, candidate: Candidate, draft: ExpectedDraft) -> int:
        return len(draft.probabilities) + self._n_awaited(candidate, draft)

    def _n_awaited(self, candidate: Candidate, draft: ExpectedDraft) -> int:
        """How many tokens on their way are worth considering."""
        return max(0, min(candidate.n_useful, self._constants.max_awaited) - len(draft.probabilities))

    def _worth_measuring(
        self,
        n_best: int,
        worth: float,
        expected: Sequence[float],
        seconds: Sequence[float],
        rate: float,
    ) -> Iterator[tuple[int, int]]:
        """(units, steps) of each T(n) that should not be older: next to the best choice, and doubtful ones.

        A step with fewer tokens is seldom slower than one with more. If a measured T(n) suggests that, the
        machine may have been busy at the time; n is measured again if it would be the best choice with the
        mean T of its neighbours.
        """
        max_units = min(len(expected), len(seconds)) - 1
        for n in range(1, min(max_units + 1, len(seconds) - 1)):
            narrower, here, wider = seconds[n - 1 : n + 2]
            if wider < here and expected[n] - rate * (narrower + wider) / 2 > worth:
                yield n, self._constants.doubtful_after
        stale_after = self._constants.stale_after
        yield from ((n, stale_after) for n in (n_best + 1, n_best - 1) if 0 <= n <= max_units)


def _best_batch(expected: Sequence[float], seconds: Sequence[float], rate: float) -> tuple[float, int]:
    """(worth, units of draft tokens) of the best step without waiting; of equal ones the smaller."""
    worths = [n_tokens - rate * step for n_tokens, step in zip(expected, seconds, strict=False)]
    best = max(worths)
    return best, worths.index(best)
