"""The adaptive policy: the most expected tokens for the time they take, over all sequences together."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from operator import itemgetter, mul, sub, truediv

from lead.engine.speculation.arrivals import Arrival
from lead.engine.speculation.batching import Batching, LikeliestFirst, Survivals
from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants
from lead.engine.speculation.drafts import MAX_DEPTH
from lead.engine.speculation.policy import Candidate, Choice, DraftMore, FutureDraft, Verify, Wait, verify
from lead.engine.speculation.step_cost import StepCost

_MIN_WAIT_S = 0.0005
"""The shortest wait: the pipe cannot wait more precisely. Anything that arrives ends it."""

_Weighed = tuple[float, Choice]
"""A choice, after what it is worth."""


class Adaptive:
    """A choice is worth (expected tokens) - rate * (T(tokens in the batch) + the time before that step).

    Expected tokens are the number of sequences + Σ survival of the draft tokens taken; a token's survival is
    the product of the probabilities up to it. `rate` is what a second is worth: see `_rate`. Waiting is for
    draft tokens that are on their way; while prompts are being processed there is something better to do.
    Drafting in the engine is like waiting, but it is known how long it takes.
    """

    def __init__(self, batching: Batching | None = None, constants: SpeculationConstants = DEFAULTS) -> None:
        self._batching = batching or LikeliestFirst()
        self._constants = constants
        self._speedup = _Speedup(constants)
        self._n_steps = 0

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
    ) -> Choice:
        if not candidates:
            return Verify(())
        step = self._next_step(candidates, n_prompt, cost)
        choices = [step.verify()]
        if n_prompt == 0:
            choices.append(step.wait())
        if draft_cost:
            choices.append(step.draft(draft_cost))
        _, choice = max(choices, key=itemgetter(0))  # the first one of equals
        return self._explored(choice, step, n_prompt, cost) if isinstance(choice, Verify) else choice

    def _next_step(self, candidates: Sequence[Candidate], n_prompt: int, cost: StepCost) -> "_NextStep":
        batching, n = self._batching, len(candidates)
        drafts: list[Survivals] = [
            tuple(accumulate(each.chain.probabilities[: each.n_useful], mul)) for each in candidates
        ]
        max_units = batching.max_units(list(map(_longest, candidates, drafts)), MAX_DEPTH)
        seconds = batching.seconds(candidates, drafts, n_prompt, cost, max_units)
        expected = batching.expected(drafts, max_units)
        rate = self._rate(expected, seconds, n / cost.seconds(n + n_prompt))
        prices = [rate * each for each in seconds]
        return _NextStep(candidates, batching, drafts, rate, prices, list(map(sub, expected, prices)))

    def _rate(self, expected: Sequence[float], seconds: Sequence[float], plain_rate: float) -> float:
        """Tokens that a second is worth: what it would yield if it were spent otherwise.

        `plain_rate` is that of steps without drafts. If steps did not depend on each other that were the
        long-run rate (a renewal process). But backs draft while the lead decodes, and good moments and bad
        ones come in runs: so it leans to this moment's.
        """
        here: float = max(plain_rate, *map(truediv, expected, seconds))
        speedup = self._speedup.value
        if speedup is None:
            return here
        weight = self._constants.long_run_weight
        return weight * speedup * plain_rate + (1 - weight) * here

    def _explored(self, choice: Verify, step: "_NextStep", n_prompt: int, cost: StepCost) -> Verify:
        """Now and then another depth, to measure its T(n) again if that was long ago."""
        self._n_steps += 1
        if self._n_steps % self._constants.explore_every:
            return choice
        n_base = sum(each.n_fed for each in step.candidates) + n_prompt
        unit = self._batching.unit(len(step.candidates))
        for n in step.worth_measuring():
            if cost.age(n_base + n * unit) > self._constants.stale_after:
                return verify(step.candidates, self._batching.depths(step.drafts, n))
        return choice


@dataclass(frozen=True, slots=True)
class _NextStep:
    """What the next step is worth with the drafts that there are now, and when they have grown.

    `prices[n]`: what the time of a step with n units of draft tokens is worth, in tokens; `worths[n]`: what
    such a step is worth with the `drafts`.
    """

    candidates: Sequence[Candidate]
    batching: Batching
    drafts: list[Survivals]
    rate: float
    prices: list[float]
    worths: list[float]

    def verify(self) -> _Weighed:
        """The best step without waiting; of equal ones the smallest."""
        best = max(self.worths)
        return best, verify(self.candidates, self.batching.depths(self.drafts, self.worths.index(best)))

    def wait(self) -> _Weighed:
        """The best wait for tokens on their way."""
        worth, seconds, _ = self._best_moment([each.awaited for each in self.candidates])
        return worth, Wait(max(seconds, _MIN_WAIT_S))

    def draft(self, cost: StepCost) -> _Weighed:
        """The best number of rounds of drafting, for the sequences for which a token may pay."""
        offers = {i: each.inline for i, each in enumerate(self.candidates) if each.inline}
        min_survival = self.rate * cost.seconds(len(offers)) / len(offers) if offers else 0.0
        offers = {i: each for i, each in offers.items() if _next_survival(each) > min_survival}
        if not offers:
            return -math.inf, DraftMore(())
        first = cost.seconds(sum(each.n_pending for each in offers.values()))
        first += sum(each.catch_up for each in offers.values())
        rounds = Arrival(first, 1, cost.seconds(len(offers)))
        futures = [
            (offers[i]._replace(arrival=rounds),) if i in offers else () for i in range(len(self.candidates))
        ]
        worth, _, n_rounds = self._best_moment(futures)
        return worth, DraftMore(tuple(offers), n_rounds, min_survival)

    def worth_measuring(self) -> Iterator[int]:
        """Numbers of units of which T(n) should not be old: doubtful ones, and those next to the best.

        A step with fewer tokens is seldom slower than one with more. If a measured T(n) suggests that, the
        machine may have been busy at the time; it is doubtful if n would be the best choice with the mean T
        of its neighbours.
        """
        worths, prices, best = self.worths, self.prices, max(self.worths)
        for n in range(1, min(len(worths), len(prices) - 1)):
            narrower, here, wider = prices[n - 1 : n + 2]
            if wider < here and worths[n] + here - (narrower + wider) / 2 > best:
                yield n
        n_best = worths.index(best)
        yield from (n for n in (n_best + 1, n_best - 1) if 0 <= n < len(worths))

    def _best_moment(self, futures: Sequence[Sequence[FutureDraft]]) -> tuple[float, float, int]:
        """(worth, seconds, tokens) of the best moment to stop waiting for these drafts, if there are any.

        futures: of each candidate. A worth of -inf: no moment is better than now. At that moment one of them
        has grown by `tokens`.
        """
        grown: list[tuple[int, FutureDraft, Survivals]] = [
            (i, draft, draft.survivals()) for i, drafts in enumerate(futures) for draft in drafts
        ]
        best = (-math.inf, 0.0, 0)
        if not grown:
            return best
        later, worth, most = list(self.drafts), max(self.worths), list(self.drafts)
        for i, _, survivals in grown:
            most[i] = [max(each) for each in zip_longest(most[i], survivals, fillvalue=0.0)]
        most_worth = self._worth(most)
        horizon = (most_worth - worth) / self.rate  # whatever comes later does not pay
        for seconds, i, n, survivals in sorted(_growths(grown, horizon)):
            price = self.rate * seconds
            if most_worth - price <= best[0]:
                break
            before, later[i] = later[i], survivals
            now = self._worth(later)
            if now > worth or (now == worth and sum(survivals) >= sum(before)):
                worth = now
            else:  # it has a better draft of another source
                later[i] = before
            if worth - price > best[0]:
                best = worth - price, seconds, n
        return best

    def _worth(self, drafts: Sequence[Survivals]) -> float:
        """What the best step is worth with these drafts."""
        worth: float = max(map(sub, self.batching.expected(drafts, len(self.prices) - 1), self.prices))
        return worth


class _Speedup:
    """The recent speed relative to decoding without drafts, valid whatever the number of sequences."""

    def __init__(self, constants: SpeculationConstants) -> None:
        self._decay = constants.speedup_decay
        self._min_steps = constants.speedup_min_steps
        self._n_tokens = 0.0
        self._n_plain = 0.0
        self._n_steps = 0

    def learn(self, n_tokens: int, n_plain: float) -> None:
        """`n_tokens` were committed in the time that `n_plain` take without drafts."""
        self._n_tokens = self._n_tokens * self._decay + n_tokens
        self._n_plain = self._n_plain * self._decay + n_plain
        self._n_steps += 1

    @property
    def value(self) -> float | None:
        """1: as fast as without drafts; None: not known yet."""
        if self._n_steps < self._min_steps or self._n_plain <= 0:
            return None
        return self._n_tokens / self._n_plain


def _growths(
    drafts: Iterable[tuple[int, FutureDraft, Survivals]], horizon: float
) -> Iterator[tuple[float, int, int, Survivals]]:
    """(seconds, candidate, n, survivals) of each moment up to `horizon` when a draft has n more tokens."""
    for i, draft, survivals in drafts:
        for n in range(1, len(survivals) - draft.n_drafted + 1):
            seconds = draft.arrival.when(n)
            if seconds > horizon:
                break
            yield seconds, i, n, survivals[: draft.n_drafted + n]


def _longest(candidate: Candidate, draft: Survivals) -> int:
    """How many draft tokens it may have after waiting or drafting."""
    futures = [*candidate.awaited, candidate.inline] if candidate.inline else candidate.awaited
    return max([len(draft), *(max(each.n_most, each.n_drafted) for each in futures)])


def _next_survival(draft: FutureDraft) -> float:
    """The probability that its next token, and all before it, will be accepted."""
    return draft.survivals()[draft.n_drafted]
