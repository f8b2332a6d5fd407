"""Tables of T(n), candidates, and tokens that are about to be added to their drafts."""

from itertools import accumulate
from operator import mul

from lead.engine.speculation.arrivals import Arrival, FutureDraft
from lead.engine.speculation.drafts import DraftToken
from lead.engine.speculation.forecast import Candidate, Forecast
from shared.step_cost import StepCost

T1 = 0.04
FLAT = dict.fromkeys(range(1, 40), 1.0)
# Ratios measured with llama.cpp on one core, 300M parameters.
F16 = {1: 1, 2: 1.28, 3: 1.43, 4: 1.51, 5: 1.68, 6: 1.80, 8: 2.20}
Q8_0 = {1: 1, 2: 1.28, 3: 1.52, 4: 1.80, 5: 2.63, 6: 2.91, 8: 2.82}
Q4_0 = {1: 1, 2: 1.69, 3: 2.16, 4: 1.51, 5: 2.26, 6: 2.74, 8: 2.92}
EXPERTS = {1: 1, 2: 3.0, 3: 3.5, 4: 4.0, 8: 6.0}
NOTHING = Candidate("empty", 99)


def cost_of(table, seconds=T1):
    cost = StepCost()
    for n, ratio in table.items():
        cost.learn(n, seconds * ratio)
    return cost


def candidate(*probabilities, sequence="s", n_useful=99, **more):
    """`probabilities`: of each draft token, if the tokens before it are accepted."""
    chain = [DraftToken(i, "a", probability) for i, probability in enumerate(probabilities)]
    return Candidate(sequence, n_useful, chain=chain, **more)


def depths_of(choice):
    """The number of verified draft tokens of each candidate."""
    return tuple(map(len, choice.drafts))


def growing(*probabilities, first_in, per_token=None, n_first=1, mean=0.9, next_ones=(), n_max=10):
    """A back whose draft has these probabilities, and which will soon add to it."""
    arrival = Arrival(first_in, n_first, first_in if per_token is None else per_token)
    return future(*probabilities, mean=mean, next_ones=next_ones, n_max=n_max, arrival=arrival)


def inline(*probabilities, mean=0.7, next_ones=(), n_max=8, **more):
    """The tokens that the engine may add to its own draft with these probabilities."""
    return future(*probabilities, mean=mean, next_ones=next_ones, n_max=n_max, **more)


def future(*drafted, mean, next_ones=(), n_max, **more):
    """A draft that may grow to `n_max` tokens: `next_ones`, and others with the probability `mean`."""
    n_max = max(n_max, len(drafted))
    each = [*drafted, *next_ones, *[mean] * n_max][:n_max]
    return FutureDraft(tuple(accumulate(each, mul)), len(drafted), **more)


class Given(Forecast):
    """The likelihood of a token is `probability`, a function of source, confidence and agreement."""

    def __init__(self, probability):
        super().__init__()
        self.probability = probability
