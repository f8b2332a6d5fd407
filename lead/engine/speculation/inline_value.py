"""What it is worth to draft in the engine before the next step."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from operator import mul

from lead.engine.speculation.batching import Batching, Survivals
from lead.engine.speculation.inline_drafting import InlineOffer
from lead.engine.speculation.policy import DraftChoice
from lead.engine.speculation.step_cost import StepCost

_NOTHING = (-math.inf, DraftChoice(()))

Offers = Mapping[int, InlineOffer]
"""By the number of the candidate."""


@dataclass(frozen=True, slots=True)
class InlineValue:
    """`seconds[n]`: of a step with n units of draft tokens. A second is worth `rate` tokens.

    `cost` is T(n) of the drafter.
    """

    batching: Batching
    seconds: Sequence[float]
    rate: float
    cost: StepCost

    def best(self, offers: Offers, drafts: Sequence[Survivals]) -> tuple[float, DraftChoice]:
        """(worth, choice): the best number of rounds, for the sequences for which a token may pay.

        A worth of -inf: for none. `drafts` are those that there are now, of all candidates.
        """
        if not offers:
            return _NOTHING
        per_token = self.cost.seconds(len(offers)) / len(offers)
        offers = {i: each for i, each in offers.items() if _next_survival(each) > self.rate * per_token}
        if not offers:
            return _NOTHING
        first = self.cost.seconds(sum(each.n_pending for each in offers.values()))
        first += sum(each.catch_up for each in offers.values())
        further = self.cost.seconds(len(offers))
        worths = self._of_one(offers[0]) if len(drafts) == 1 else self._of_several(offers, drafts)
        moments = ((worth - self.rate * (first + n * further), -n) for n, worth in enumerate(worths))
        worth, n = max(moments, default=(-math.inf, 0))
        return worth, DraftChoice(tuple(offers), 1 - n, self.rate * per_token)

    def _of_one(self, offer: InlineOffer) -> Iterator[float]:
        """What the step is worth after each further round, of one sequence alone: the usual case, quickly."""
        survival = expected = 1.0
        best = expected - self.rate * self.seconds[0]
        probabilities = chain(offer.probabilities, offer.prospects, repeat(offer.mean))
        n_most = min(offer.n_most, len(self.seconds) - 1)
        for n, probability in zip(range(1, n_most + 1), probabilities, strict=False):
            survival *= probability
            expected += survival
            best = max(best, expected - self.rate * self.seconds[n])
            if n > len(offer.probabilities):
                yield best

    def _of_several(self, offers: Offers, drafts: Sequence[Survivals]) -> Iterator[float]:
        """The same for several sequences."""
        n_most = max(each.n_most - len(each.probabilities) for each in offers.values())
        for n_rounds in range(1, n_most + 1):
            later = list(drafts)
            for i, offer in offers.items():
                probabilities = (*offer.probabilities, *offer.further(n_rounds))[: offer.n_most]
                later[i] = max(drafts[i], tuple(accumulate(probabilities, mul)), key=sum)
            expected = self.batching.expected(later, len(self.seconds) - 1)
            worths = (n - self.rate * step for n, step in zip(expected, self.seconds, strict=False))
            yield max(worths)


def _next_survival(offer: InlineOffer) -> float:
    """The probability that the next token of this draft, and all before it, will be accepted."""
    return math.prod(offer.probabilities) * offer.further(1)[0]
