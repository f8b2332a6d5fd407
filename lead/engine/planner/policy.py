"""Policies: from what is there and what is to come to a choice of depths, or to wait.

`Adaptive` is the one that people should run; the others are what it is compared with.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

from lead.engine.board import Proposal
from lead.engine.planner.arrivals import Arrival
from lead.engine.planner.step_cost import StepCost

MOST_DEPTH = 32
"""Deeper than this no policy goes, whatever lies on the board."""
SYNC_PATIENCE_S = 1.0
"""How long `Sync` waits for a source that says nothing."""

_EXPLORE_EVERY = 32
_STALE = 256
"""A T(n) beside the best choice that was last measured so many steps ago is measured again."""


class Prospect(NamedTuple):
    """What a source is about to add to its line: `mean` is the chance of each further token."""

    chances: tuple[float, ...]
    mean: float
    arrival: Arrival


class Offer(NamedTuple):
    """A sequence that generates: the best line on the board, and what more may come of it by waiting.

    `n_useful` is the most draft tokens that can be committed. `at_work`: a source is drafting for it and has
    not been silent for long.
    """

    proposal: Proposal
    n_useful: int
    prospects: tuple[Prospect, ...] = ()
    at_work: bool = False


class Choice(NamedTuple):
    """One depth per offer; or, if `wait` > 0, ask again when something has arrived or after so many seconds.

    `expected` is the number of tokens that the step is expected to commit.
    """

    depths: tuple[int, ...]
    wait: float = 0.0
    expected: float = 0.0


class Policy(Protocol):
    """Chooses."""

    def choose(self, offers: Sequence[Offer], n_prompt: int, cost: StepCost) -> Choice:
        """For the next step, which has `n_prompt` tokens of prompts in its batch besides."""


class Off:
    """No speculation."""

    def choose(self, offers: Sequence[Offer], _n_prompt: int, _cost: StepCost) -> Choice:
        return Choice((0,) * len(offers), expected=len(offers))


class Fixed:
    """Verify up to `depth` tokens whenever they are there; never wait for them."""

    def __init__(self, depth: int) -> None:
        self._depth = depth

    def choose(self, offers: Sequence[Offer], _n_prompt: int, _cost: StepCost) -> Choice:
        depths = tuple(min(len(offer.proposal.tokens), self._depth) for offer in offers)
        return Choice(depths, expected=_expected(offers, depths))


class Sync:
    """Wait for `depth` tokens at every step, as a drafter inside the same program does."""

    def __init__(self, depth: int) -> None:
        self._fixed = Fixed(depth)
        self._depth = depth

    def choose(self, offers: Sequence[Offer], n_prompt: int, cost: StepCost) -> Choice:
        choice = self._fixed.choose(offers, n_prompt, cost)
        waiting = any(
            offer.at_work and depth < min(self._depth, offer.n_useful)
            for offer, depth in zip(offers, choice.depths, strict=True)
        )
        return choice._replace(wait=SYNC_PATIENCE_S) if waiting and not n_prompt else choice


class Adaptive:
    """The most expected tokens per second, over all sequences together.

    rate = (number of sequences + Σ survival of the draft tokens taken) / (T(tokens in the batch) + wait);
    a token's survival is the product of the chances up to it. Waiting is for draft tokens that are on their
    way; while prompts are being processed there is something better to do.
    """

    def __init__(self) -> None:
        self._n_choices = 0

    def choose(self, offers: Sequence[Offer], n_prompt: int, cost: StepCost) -> Choice:
        lines = [tuple(accumulate(offer.proposal.chances[: offer.n_useful], _times)) for offer in offers]
        n_base = len(offers) + n_prompt
        seconds = [cost.seconds(n_base + n) for n in range(_most_tokens(offers, lines) + 1)]
        now = _best_batch(lines, seconds, 0.0)
        if n_prompt == 0 and (wait := _worth_waiting(offers, lines, seconds, now.rate)):
            return Choice((0,) * len(offers), wait)
        self._n_choices += 1
        n_tokens = self._explored(now.n_tokens, n_base, sum(map(len, lines)), cost)
        depths = _depths(lines, n_tokens)
        return Choice(depths, expected=_expected(offers, depths))

    def _explored(self, n_tokens: int, n_base: int, n_there: int, cost: StepCost) -> int:
        """Now and then one more or one less, so that T(n) beside the usual choice stays known."""
        if self._n_choices % _EXPLORE_EVERY:
            return n_tokens
        beside = [n for n in (n_tokens + 1, n_tokens - 1) if 0 <= n <= min(n_there, MOST_DEPTH)]
        stale = [n for n in beside if cost.age(n_base + n) > _STALE]
        return stale[0] if stale else n_tokens


class _Batch(NamedTuple):
    rate: float
    n_tokens: int


def _most_tokens(offers: Sequence[Offer], lines: Sequence[Sequence[float]]) -> int:
    """The most draft tokens that there can be in the batch, those on their way included."""
    n = sum(
        max([len(line), *(len(each.chances) + _room(offer, each) for each in offer.prospects)])
        for offer, line in zip(offers, lines, strict=True)
    )
    return min(n, MOST_DEPTH)


def _best_batch(lines: Sequence[Sequence[float]], seconds: Sequence[float], wait: float) -> _Batch:
    """How many draft tokens give the best rate: the likeliest first, wherever they are from."""
    survivals = lines[0] if len(lines) == 1 else sorted((s for line in lines for s in line), reverse=True)
    right = float(len(lines))
    best = _Batch(right / (seconds[0] + wait), 0)
    for n, survival in enumerate(survivals[: len(seconds) - 1], start=1):
        right += survival
        rate = right / (seconds[n] + wait)
        if rate > best.rate:
            best = _Batch(rate, n)
    return best


def _worth_waiting(
    offers: Sequence[Offer], lines: Sequence[Sequence[float]], seconds: Sequence[float], rate_now: float
) -> float:
    """Seconds to wait for what is on its way, 0 if going ahead is as good."""
    moments = sorted(
        {
            prospect.arrival.when(n_more)
            for offer in offers
            for prospect in offer.prospects
            for n_more in range(1, _room(offer, prospect) + 1)
        }
    )
    best_rate, best_wait = rate_now, 0.0
    for moment in moments:
        later = [_line_at(offer, line, moment) for offer, line in zip(offers, lines, strict=True)]
        batch = _best_batch(later, seconds, moment)
        if batch.rate > best_rate:
            best_rate, best_wait = batch.rate, max(moment, _LEAST_WAIT_S)
    return best_wait


def _line_at(offer: Offer, line: Sequence[float], moment: float) -> Sequence[float]:
    """The survivals of the best line that is to be expected `moment` seconds from now."""
    best, best_sum = line, sum(line)
    for prospect in offer.prospects:
        n_more = sum(prospect.arrival.when(n) <= moment for n in range(1, _room(offer, prospect) + 1))
        chances = (*prospect.chances, *(prospect.mean,) * n_more)[: offer.n_useful]
        longer = tuple(accumulate(chances, _times))
        if sum(longer) > best_sum:
            best, best_sum = longer, sum(longer)
    return best


def _room(offer: Offer, prospect: Prospect) -> int:
    return max(0, min(offer.n_useful, _FAR) - len(prospect.chances))


_LEAST_WAIT_S = 0.0005
"""Whatever arrives ends a wait, so it may be longer than meant; a shorter one would be over at once."""
_FAR = 10
"""Nobody waits for a tenth token: the chance that all before it are right is small."""


def _depths(lines: Sequence[Sequence[float]], n_tokens: int) -> tuple[int, ...]:
    """How many of the `n_tokens` likeliest are in each line: along a line survival only falls."""
    if len(lines) == 1:
        return (n_tokens,)
    ranked = sorted(
        ((survival, i) for i, line in enumerate(lines) for survival in line), key=lambda pair: -pair[0]
    )
    taken = [i for _, i in ranked[:n_tokens]]
    return tuple(taken.count(i) for i in range(len(lines)))


def _expected(offers: Sequence[Offer], depths: Sequence[int]) -> float:
    return sum(
        1 + sum(accumulate(offer.proposal.chances[:depth], _times))
        for offer, depth in zip(offers, depths, strict=True)
    )


def _times(a: float, b: float) -> float:
    return a * b
