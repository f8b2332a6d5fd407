"""Policies: from what is there and what is to come to a choice of depths, or to wait.

`Adaptive` is the one that people should run; the others are what it is compared with.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, repeat
from typing import NamedTuple, Protocol

from lead.engine.speculation.arrivals import Arrival
from lead.engine.speculation.batching import Batching, Free, Line
from lead.engine.speculation.board import Proposal
from lead.engine.speculation.gain import Gain
from lead.engine.speculation.step_cost import StepCost

MOST_DEPTH = 32
"""Deeper than this no policy goes, whatever lies on the board."""
SYNC_PATIENCE_S = 1.0
"""How long `Sync` waits for a source that says nothing."""

_EXPLORE_EVERY = 32
_LONG_RUN = 0.75
"""Weight of the long-run rate. Of 94 simulated cells the worst was, against its best fixed or sync depth, .92
with 0, .95 with .5, .98 with .65 and .8, .97 with 1 (`bench simulate`)."""
_STALE = 256
"""A T(n) beside the best choice that was last measured so many steps ago is measured again."""
_DOUBTFUL = 64
"""So is one that may hide a better choice, after so many steps."""


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

    def learn(self, n_sequences: int, n_committed: int, seconds: float, cost: StepCost) -> None:
        """A step without prompts committed `n_committed` tokens in `seconds`, the wait before it included."""


class _Unteachable:
    """One that has nothing to learn."""

    def learn(self, n_sequences: int, n_committed: int, seconds: float, cost: StepCost) -> None:
        pass


class Off(_Unteachable):
    """No speculation."""

    def choose(self, offers: Sequence[Offer], _n_prompt: int, _cost: StepCost) -> Choice:
        return Choice((0,) * len(offers), expected=len(offers))


class Fixed(_Unteachable):
    """Verify up to `depth` tokens whenever they are there; never wait for them."""

    def __init__(self, depth: int) -> None:
        self._depth = depth

    def choose(self, offers: Sequence[Offer], _n_prompt: int, _cost: StepCost) -> Choice:
        depths = tuple(min(len(offer.proposal.tokens), self._depth) for offer in offers)
        return Choice(depths, expected=_expected(offers, depths))


class Sync(_Unteachable):
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
    """The most expected tokens for the time they take, over all sequences together.

    A choice is worth (number of sequences + Σ survival of the draft tokens taken) - rate * (T(tokens in the
    batch) + wait); a token's survival is the product of the chances up to it. `rate` is what a second is
    worth: see `_rate`. Waiting is for draft tokens that are on their way; while prompts are being processed
    there is something better to do.
    """

    def __init__(self, batching: Batching | None = None) -> None:
        self._batching = batching or Free()
        self._n_choices = 0
        self._gain = Gain()

    def learn(self, n_sequences: int, n_committed: int, seconds: float, cost: StepCost) -> None:
        # No step is quicker than one without drafts, whatever an early guess at T says.
        n_plain_steps = max(1.0, seconds / cost.seconds(n_sequences))
        self._gain.learn(n_committed, n_sequences * n_plain_steps)

    def choose(self, offers: Sequence[Offer], n_prompt: int, cost: StepCost) -> Choice:
        lines = [tuple(accumulate(offer.proposal.chances[: offer.n_useful], _times)) for offer in offers]
        batching = self._batching
        if not offers:
            return Choice(())
        n_base, unit = len(offers) + n_prompt, batching.unit(len(offers))
        n_most = batching.most_units(_lengths(offers, lines), MOST_DEPTH)
        seconds = [cost.seconds(n_base + n * unit) for n in range(n_most + 1)]
        right = batching.right(lines, n_most)
        rate = self._rate(right, seconds)
        value, n_units = _best_batch(right, seconds, rate)
        if n_prompt == 0 and (wait := self._worth_waiting(offers, lines, seconds, rate, value)):
            return Choice((0,) * len(offers), wait)
        self._n_choices += 1
        if self._n_choices % _EXPLORE_EVERY == 0:
            stale = (
                n
                for n, most_age in _worth_knowing(n_units, value, right, seconds, rate)
                if cost.age(n_base + n * unit) > most_age
            )
            n_units = next(stale, n_units)
        depths = batching.depths(lines, n_units)
        return Choice(depths, expected=_expected(offers, depths))

    def _rate(self, right: Sequence[float], seconds: Sequence[float]) -> float:
        """Tokens that a second is worth, which are what it would give if it were spent otherwise.

        If steps did not depend on each other that were the long-run rate (a renewal process). But backs draft
        while the lead decodes, and good moments and bad ones come in runs: so it leans to this moment's.
        """
        here = max(n_right / step for n_right, step in zip(right, seconds, strict=False))
        gain = self._gain.value
        if gain is None:
            return here
        return _LONG_RUN * gain * right[0] / seconds[0] + (1 - _LONG_RUN) * here

    def _worth_waiting(
        self,
        offers: Sequence[Offer],
        lines: Sequence[Line],
        seconds: Sequence[float],
        rate: float,
        worth_now: float,
    ) -> float:
        """Seconds to wait for what is on its way, 0 if going ahead is as good."""
        if len(offers) == 1:
            moments = _moments_of_one(offers[0], seconds, rate)
        else:
            moments = self._moments_of_all(offers, lines, seconds, rate)
        worth, moment = max(moments, default=(worth_now, 0.0))
        return max(moment, _LEAST_WAIT_S) if worth > worth_now + _EPSILON else 0.0

    def _moments_of_all(
        self, offers: Sequence[Offer], lines: Sequence[Line], seconds: Sequence[float], rate: float
    ) -> Iterator[tuple[float, float]]:
        """(worth, wait) for each token that is to come, of several sequences."""
        moments = {
            prospect.arrival.when(n_more)
            for offer in offers
            for prospect in offer.prospects
            for n_more in range(1, _room(offer, prospect) + 1)
        }
        for moment in moments:
            later = [_line_at(offer, line, moment) for offer, line in zip(offers, lines, strict=True)]
            right = self._batching.right(later, len(seconds) - 1)
            yield _best_batch(right, seconds, rate)[0] - rate * moment, moment


def _lengths(offers: Sequence[Offer], lines: Sequence[Line]) -> list[int]:
    """How many draft tokens there can be for each, those on their way included."""
    return [
        max([len(line), *(len(each.chances) + _room(offer, each) for each in offer.prospects)])
        for offer, line in zip(offers, lines, strict=True)
    ]


def _best_batch(right: Sequence[float], seconds: Sequence[float], rate: float) -> tuple[float, int]:
    """(worth, units of draft tokens) of the best step without waiting; of equal ones the smaller."""
    worths = [n_right - rate * step for n_right, step in zip(right, seconds, strict=False)]
    best = max(worths)
    return best, worths.index(best)


def _worth_knowing(
    n_best: int, worth: float, right: Sequence[float], seconds: Sequence[float], rate: float
) -> Iterator[tuple[int, int]]:
    """(choice, steps) of each whose T(n) should not be older: neighbours of the best, and what it may hide.

    A step with fewer tokens is seldom dearer than one with more. Where it is said to be, that may be a step
    in T or a busy moment when it was measured; it is asked again if, costing what lies between its
    neighbours, it were the best choice.
    """
    n_most = min(len(right), len(seconds)) - 1
    for n in range(1, min(n_most + 1, len(seconds) - 1)):
        narrower, here, wider = seconds[n - 1 : n + 2]
        if wider < here and right[n] - rate * (narrower + wider) / 2 > worth:
            yield n, _DOUBTFUL
    yield from ((n, _STALE) for n in (n_best + 1, n_best - 1) if 0 <= n <= n_most)


def _moments_of_one(offer: Offer, seconds: Sequence[float], rate: float) -> Iterator[tuple[float, float]]:
    """(worth, wait) for each token that is to come, of one sequence alone: the usual case, and quick."""
    for prospect in offer.prospects:
        n_line = min(len(prospect.chances), offer.n_useful)
        n_end = n_line + _room(offer, prospect)
        chances = chain(prospect.chances[:n_line], repeat(prospect.mean))
        survival = right = 1.0
        best = right - rate * seconds[0]
        for n, chance in zip(range(1, min(n_end + 1, len(seconds))), chances, strict=False):
            survival *= chance
            right += survival
            best = max(best, right - rate * seconds[n])
            if n > n_line:
                moment = prospect.arrival.when(n - n_line)
                yield best - rate * moment, moment


def _line_at(offer: Offer, line: Line, moment: float) -> Line:
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


_EPSILON = 1e-9
_LEAST_WAIT_S = 0.0005
"""Whatever arrives ends a wait, so it may be longer than meant; a shorter one would be over at once."""
_FAR = 10
"""Nobody waits for a tenth token: the chance that all before it are right is small."""


def _expected(offers: Sequence[Offer], depths: Sequence[int]) -> float:
    return sum(
        1 + sum(accumulate(offer.proposal.chances[:depth], _times))
        for offer, depth in zip(offers, depths, strict=True)
    )


def _times(a: float, b: float) -> float:
    return a * b
