"""Policies: choose between a step that verifies drafts, a wait for more draft tokens, and drafting.

`Adaptive`, the default, maximizes the expected tokens per time over all sequences together. `Fixed` and
`Sync` exist for comparison.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, zip_longest
from operator import itemgetter, sub, truediv
from typing import NamedTuple, Protocol

from lead.engine.speculation.arrivals import Arrival, FutureDraft
from lead.engine.speculation.batching import Batching
from lead.engine.speculation.constants import DEFAULTS, MAX_DEPTH, SpeculationConstants
from lead.engine.speculation.drafts import DraftChain, Drafts, Probabilities
from lead.engine.speculation.forecast import Candidate
from shared.step_cost import StepCost

SYNC_PATIENCE_S = 1.0
"""The time after which `Sync` no longer waits for a silent source."""
_MAX_PLAIN_STEPS = 2.0 * MAX_DEPTH
"""The maximum time counted for a step, in steps without drafts. A longer step was interrupted."""
_MIN_WAIT_S = 0.0005
"""The shortest wait, as the pipe cannot wait more precisely. Any command ends it."""


class Verify(NamedTuple):
    """Decode a step with these drafts, one for each candidate."""

    drafts: Sequence[DraftChain]


class Wait(NamedTuple):
    """Wait up to this many seconds, or until a command arrives; then choose again."""

    seconds: float


class DraftOrder(NamedTuple):
    """Draft up to `n_rounds` more tokens for each of these sequences in the engine, then choose again.

    A sequence drops out when the probability that its whole draft is accepted falls below `min_probability`.
    at_once: in one round, the drafter reads all text that it has missed, however long that takes.
    """

    sequences: tuple[Drafts, ...]
    n_rounds: int = 1
    min_probability: float = 0.0
    at_once: bool = False


Choice = Verify | Wait | DraftOrder
_Weighed = tuple[float, Choice]
"""A choice and its value in tokens: (value, choice)."""


class Policy(Protocol):
    """Chooses the next action."""

    def choose(self, candidates: Sequence[Candidate], n_prompt: int) -> Choice:
        """Choose the next action. n_prompt: the number of prompt tokens in the next step's batch."""


class Fixed:
    """Verifies up to `depth` available tokens; never waits for backs."""

    def __init__(self, depth: int) -> None:
        self._depth = depth

    def choose(self, candidates: Sequence[Candidate], _n_prompt: int) -> Choice:
        short = tuple(each.drafts for each in candidates if each.inline and len(each.chain) < self._depth)
        if short:
            return DraftOrder(short)
        return Verify([each.chain[: self._depth] for each in candidates])


class Sync:
    """Waits for `depth` tokens before every step, as with a draft model inside the same program."""

    def __init__(self, depth: int) -> None:
        self._fixed = Fixed(depth)
        self._depth = depth

    def choose(self, candidates: Sequence[Candidate], n_prompt: int) -> Choice:
        choice = self._fixed.choose(candidates, n_prompt)
        if n_prompt or not isinstance(choice, Verify):
            return choice
        waiting = any(
            each.is_drafting and len(each.chain) < min(self._depth, each.n_useful) for each in candidates
        )
        return Wait(SYNC_PATIENCE_S) if waiting else choice


class Adaptive:
    """Chooses the action with the most expected tokens, minus the value of its time in tokens.

    Expected tokens are the number of sequences + Σ probability of the draft tokens taken. The time is
    T(tokens in the batch) plus the wait or the drafting before the step. `_rate` gives the value of a second
    in tokens. So it pays to wait for draft tokens that are about to arrive, but not while prompts can be
    processed instead.
    """

    def __init__(
        self,
        batching: Batching,
        draft_cost: StepCost | None = None,
        constants: SpeculationConstants = DEFAULTS,
    ) -> None:
        """draft_cost: T(n) of the drafter in the engine; None: there is none."""
        self._batching = batching
        self._draft_cost = draft_cost
        self._constants = constants
        self._speedup = _Speedup(constants)
        self._n_steps = 0

    def learn(self, n_sequences: int, n_committed: int, seconds: float) -> None:
        """Record that a step without prompts committed `n_committed` tokens in `seconds`, including the wait
        before it.
        """
        # No step is faster than one without drafts, even if an early estimate of T suggests it.
        n_plain_steps = max(1.0, seconds / self._batching.cost.seconds(n_sequences))
        self._speedup.learn(n_committed, n_sequences * min(n_plain_steps, _MAX_PLAIN_STEPS))

    def choose(self, candidates: Sequence[Candidate], n_prompt: int) -> Choice:
        if not any(each.chain or each.awaited or each.inline for each in candidates):
            return Verify([()] * len(candidates))
        step = self._next_step(candidates, n_prompt)
        choices = [step.verify()]
        if n_prompt == 0 and any(each.awaited for each in candidates):
            choices.append(step.wait())
        if self._draft_cost:
            choices.append(step.draft(self._draft_cost))
        _, choice = max(choices, key=itemgetter(0)) if len(choices) > 1 else choices[0]  # first of equals
        if not isinstance(choice, Verify):
            return choice
        if not n_prompt:
            self._batching.widths.learn(step.sizes.start, step.yields(self._draft_cost), step.rate)
        return self._explored(choice, step)

    def _next_step(self, candidates: Sequence[Candidate], n_prompt: int) -> "_NextStep":
        batching, n = self._batching, len(candidates)
        drafts = [each.probabilities for each in candidates]
        n_base = sum(each.n_fed for each in candidates) + n_prompt
        sizes = batching.sizes(n_base, list(map(_longest, candidates)))
        seconds = batching.seconds(sizes, candidates, n_prompt)
        expected = batching.expected(drafts, len(sizes) - 1)
        rate = self._rate(expected, seconds, n / batching.cost.seconds(n + n_prompt))
        prices = [rate * each for each in seconds]
        return _NextStep(candidates, batching, drafts, sizes, rate, prices, list(map(sub, expected, prices)))

    def _rate(self, expected: Sequence[float], seconds: Sequence[float], plain_rate: float) -> float:
        """Return the value of a second in tokens: what it would yield if it were spent otherwise.

        plain_rate: tokens per second of steps without drafts. If steps were independent, the value would be
        the long-run rate (a renewal process). But backs draft while the lead decodes, and good and bad
        moments come in runs. Therefore the value is a mean of the long-run rate and the rate of this moment.
        """
        here: float = max(plain_rate, *map(truediv, expected, seconds))
        speedup = self._speedup.value
        if speedup is None:
            return here
        weight = self._constants.long_run_weight
        return weight * speedup * plain_rate + (1 - weight) * here

    def _explored(self, choice: Verify, step: "_NextStep") -> Verify:
        """Now and then, replace the choice by another depth whose T(n) was measured long ago."""
        self._n_steps += 1
        if self._n_steps % self._constants.explore_every:
            return choice
        for n in step.worth_measuring():
            if self._batching.cost.age(step.sizes[n]) > self._constants.stale_after:
                return step.with_size(n)
        return choice


class _NextStep(NamedTuple):
    """The values of the next step in tokens, with the present drafts and with drafts that have grown.

    prices[n]: the value of the time of a step with sizes[n] tokens. worths[n]: the value of such a step with
    `drafts`, minus its price.
    """

    candidates: Sequence[Candidate]
    batching: Batching
    drafts: list[Probabilities]
    sizes: range
    rate: float
    prices: list[float]
    worths: list[float]

    def with_size(self, n: int) -> Verify:
        """Return the step with sizes[n] tokens."""
        depths = self.batching.depths(self.drafts, n)
        return Verify([each.chain[:depth] for each, depth in zip(self.candidates, depths, strict=True)])

    def verify(self) -> _Weighed:
        """Return the best step without waiting; of equally good ones, the smallest."""
        best = max(self.worths)
        return best, self.with_size(self.worths.index(best))

    def yields(self, cost: StepCost | None) -> list[float]:
        """Return the expected tokens of steps with 0, 1, … additional tokens, minus the price of drafting.

        Includes tokens that the engine's drafter could add. The price also covers tokens that this drafter
        has already drafted for this step. cost: T(n) of this drafter; None: there is none.
        """
        drafts = [
            max(each.probabilities, each.inline.probabilities if each.inline else (), key=len)
            for each in self.candidates
        ]
        expected = self.batching.expected(drafts, MAX_DEPTH)
        if cost is None:
            return expected
        n = len(self.candidates)
        n_free = sum(len(each.chain) - each.n_inline for each in self.candidates)
        price = self.rate * cost.seconds(n) / n
        return list(accumulate((each - price * max(0, i - n_free) for i, each in enumerate(expected)), max))

    def wait(self) -> _Weighed:
        """Return the best wait for tokens that are about to arrive."""
        worth, seconds, _ = self._best_moment([each.awaited for each in self.candidates])
        return worth, Wait(max(seconds, _MIN_WAIT_S))

    def draft(self, cost: StepCost) -> _Weighed:
        """Return the best number of rounds of drafting, for the sequences for which a token may pay."""
        offers = {i: each.inline for i, each in enumerate(self.candidates) if each.inline}
        min_probability = self.rate * cost.seconds(len(offers)) / len(offers) if offers else 0.0
        offers = {
            i: each for i, each in offers.items() if each.probabilities[each.n_drafted] > min_probability
        }
        if not offers:
            return -math.inf, DraftOrder(())
        first = cost.seconds(sum(each.n_pending for each in offers.values()))
        first += sum(each.catch_up for each in offers.values())
        rounds = Arrival(first, 1, cost.seconds(len(offers)))
        futures = [
            (offers[i]._replace(arrival=rounds),) if i in offers else () for i in range(len(self.candidates))
        ]
        worth, _, n_rounds = self._best_moment(futures)
        return worth, DraftOrder(tuple(self.candidates[i].drafts for i in offers), n_rounds, min_probability)

    def worth_measuring(self) -> Iterator[int]:
        """Yield the indices of sizes that should have been timed lately: doubtful ones, and neighbors of the
        best size.

        A step with fewer tokens is seldom slower than one with more. If measured times say so, the machine
        may have been busy. A size is doubtful if it would be the best choice with the mean time of its
        neighbors.
        """
        worths, prices, best = self.worths, self.prices, max(self.worths)
        for n in range(1, min(len(worths), len(prices) - 1)):
            smaller, here, larger = prices[n - 1 : n + 2]
            if larger < here and worths[n] + here - (smaller + larger) / 2 > best:
                yield n
        n_best = worths.index(best)
        yield from (n for n in (n_best + 1, n_best - 1) if 0 <= n < len(worths))

    def _best_moment(self, futures: Sequence[Sequence[FutureDraft]]) -> tuple[float, float, int]:
        """Return (worth, seconds, tokens) of the best moment to stop waiting for these drafts.

        futures: the drafts of each candidate. A worth of -inf: no moment is better than now. tokens: how many
        tokens the draft that grows at that moment has gained by then.
        """
        grown = [(i, draft) for i, drafts in enumerate(futures) for draft in drafts]
        best = (-math.inf, 0.0, 0)
        if not grown:
            return best
        later, worth, maximum = list(self.drafts), max(self.worths), list(self.drafts)
        for i, draft in grown:
            maximum[i] = [max(each) for each in zip_longest(maximum[i], draft.probabilities, fillvalue=0.0)]
        max_worth = self._worth(maximum)
        horizon = (max_worth - worth) / self.rate  # whatever comes later does not pay
        for seconds, i, n, probabilities in sorted(_growths(grown, horizon)):
            price = self.rate * seconds
            if max_worth - price <= best[0]:
                break
            before, later[i] = later[i], probabilities
            now = self._worth(later)
            if now > worth or (now == worth and sum(probabilities) >= sum(before)):
                worth = now
            else:  # it has a better draft of another source
                later[i] = before
            if worth - price > best[0]:
                best = worth - price, seconds, n
        return best

    def _worth(self, drafts: Sequence[Probabilities]) -> float:
        """Return the value of the best step with these drafts, in tokens."""
        worth: float = max(map(sub, self.batching.expected(drafts, len(self.prices) - 1), self.prices))
        return worth


class _Speedup:
    """The recent speed relative to decoding without drafts; it does not depend on the number of sequences.

    It divides the committed tokens by the number of steps without drafts that fit into their time, at the
    present T(n). Old steps are forgotten.
    """

    def __init__(self, constants: SpeculationConstants) -> None:
        self._decay = constants.speedup_decay
        self._min_steps = constants.speedup_min_steps
        self._n_tokens = 0.0
        self._n_plain = 0.0
        self._n_steps = 0

    def learn(self, n_tokens: int, n_plain: float) -> None:
        """Record that `n_tokens` were committed in the time in which `n_plain` are committed
        without drafts.
        """
        self._n_tokens = self._n_tokens * self._decay + n_tokens
        self._n_plain = self._n_plain * self._decay + n_plain
        self._n_steps += 1

    @property
    def value(self) -> float | None:
        """The speedup; 1: as fast as without drafts; None: unknown."""
        if self._n_steps < self._min_steps or self._n_plain <= 0:
            return None
        return self._n_tokens / self._n_plain


def _growths(
    drafts: Iterable[tuple[int, FutureDraft]], horizon: float
) -> Iterator[tuple[float, int, int, Probabilities]]:
    """Yield (seconds, candidate, n, draft) for each moment up to `horizon` when a draft has n more tokens."""
    for i, draft in drafts:
        for n in range(1, len(draft.probabilities) - draft.n_drafted + 1):
            seconds = draft.arrival.when(n)
            if seconds > horizon:
                break
            yield seconds, i, n, draft.probabilities[: draft.n_drafted + n]


def _longest(candidate: Candidate) -> int:
    """Return the maximum number of draft tokens after waiting or drafting."""
    longest = len(candidate.chain)
    for each in (*candidate.awaited, candidate.inline) if candidate.inline else candidate.awaited:
        longest = max(longest, len(each.probabilities))
    return longest
