"""Values that are learned from durations stay finite and above 0, and disturbed durations are forgotten.

A machine may sleep in the middle of a step, a clock may show no time at all, and another program may slow
everything down.
"""

import math
from itertools import repeat

import pytest

from back.lead_shares import LeadShares
from lead.backs.assignment import Assignment
from lead.engine.reuse import MovePrice
from lead.engine.scheduler import PromptChunk
from lead.engine.speculation.arrivals import Arrivals
from lead.engine.speculation.batching import LikeliestFirst
from lead.engine.speculation.drafts import Drafts
from lead.engine.speculation.policy import Adaptive
from lead.engine.speculation.tuning import BackTuning
from shared.cache_edits import Snapshot
from shared.text_store import PromptCacheSize
from tests.lead.engine.speculation.support import cost_of

USUAL = 0.01
SLEPT = 3 * 3600.0
RISING = {n: float(n) for n in range(1, 12)}


def move_price():
    price = MovePrice(PromptCacheSize(1 << 30, 131_072, n_part=256), 8 << 30)
    return lambda seconds: price.learn([Snapshot("text", 1, 256)], seconds, 0.1), lambda: price.idle_steps


def prompt_chunk():
    chunk = PromptChunk(64, 512)
    return lambda seconds: chunk.learn(128, seconds), lambda: chunk.seconds


def pace_of_tokens():
    arrivals, drafts = Arrivals(), Drafts("s", [1], {}, 0.0)
    now, end = 0.0, 1

    def learn(seconds):
        nonlocal now, end
        now, end = now + seconds, end + 1
        arrivals.on_draft(drafts, "a", 1, end, now, alive=True)

    return learn, lambda: arrivals._sources["a"].token.value


def speedup():
    policy = Adaptive(LikeliestFirst(cost_of(RISING, USUAL / 2)))
    return lambda seconds: policy.learn(1, 3, seconds), lambda: policy._speedup.value


def confidence_of_backs():
    tuning, cost = BackTuning(), cost_of(RISING, USUAL / 8)

    def learn(seconds):
        tuning.note_step([2], 3, seconds)
        tuning.update(1, USUAL, cost)

    return learn, lambda: tuning.min_confidence


def step_of_sequences():
    assignment = Assignment(0.0)
    assignment.open("s", 0.0)
    return lambda seconds: assignment.on_step("s", {}, seconds, 0.0), lambda: assignment._step_seconds


def share_of_a_lead():
    """The recent steps of another lead for each step of this lead. Only this lead's steps are disturbed."""
    shares, n_served = LeadShares(2), [1.0, 1.0]

    def learn(seconds):
        served = shares.choose([0, 1])
        for lead in (0, 1):
            n_served[lead] = 0.99 * n_served[lead] + (lead in served)
            if lead in served:
                shares.charge({lead: 1}, USUAL if lead else seconds)

    shares.choose([0])
    return learn, lambda: n_served[0] / n_served[1]


LEARNERS = [
    *(move_price, prompt_chunk, pace_of_tokens, speedup),
    *(confidence_of_backs, step_of_sequences, share_of_a_lead),
]


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize(
    "disturbance",
    [
        pytest.param([SLEPT], id="slept"),
        pytest.param([SLEPT, USUAL, USUAL, SLEPT], id="slept twice"),
        pytest.param([0.0] * 50, id="coarse clock"),
        pytest.param([1e-300] * 50, id="no time"),
        pytest.param([3 * USUAL] * 300, id="slower for a while"),
        pytest.param([USUAL / 100, 2 * USUAL] * 50, id="by turns"),
    ],
)
@pytest.mark.parametrize("n_before", [0, 200])
def test_what_was_learned_is_right_again_after_some_time(learner, disturbance, n_before):
    (undisturbed, truth), (learn, value) = learner(), learner()
    for seconds in repeat(USUAL, 2200):
        undisturbed(seconds)
    for seconds in repeat(USUAL, n_before):
        learn(seconds)
    for seconds in disturbance:
        learn(seconds)
        assert not n_before or 0 < value() < math.inf
    for seconds in repeat(USUAL, 2000):
        learn(seconds)
    assert truth() / 1.5 < value() < 1.5 * truth()
