"""The policies that the adaptive one is compared with."""

import pytest

from lead.engine.speculation.arrivals import Arrival
from lead.engine.speculation.draft_chain import EMPTY_CHAIN, DraftChain
from lead.engine.speculation.policy import SYNC_PATIENCE_S, Candidate, ExpectedDraft, Fixed, Off, Sync
from lead.engine.speculation.step_cost import StepCost

T1 = 0.04
FLAT = dict.fromkeys(range(1, 40), 1.0)
# Ratios measured with llama.cpp on one core, 300M parameters.
F16 = {1: 1, 2: 1.28, 3: 1.43, 4: 1.51, 5: 1.68, 6: 1.80, 8: 2.20}
EXPERTS = {1: 1, 2: 3.0, 3: 3.5, 4: 4.0, 8: 6.0}


def cost_of(table, seconds=T1):
    cost = StepCost()
    for n, ratio in table.items():
        cost.learn(n, seconds * ratio)
    return cost


def chain_of(*probabilities):
    return DraftChain(tuple(range(len(probabilities))), ("a",) * len(probabilities), probabilities)


def candidate(*probabilities, n_useful=99, **more):
    return Candidate(chain_of(*probabilities), n_useful, **more)


def growing(*probabilities, first_in, per_token=None, n_first=1, mean=0.9):
    """A source whose line has these probabilities, and which is about to add to it."""
    arrival = Arrival(first_in, n_first, first_in if per_token is None else per_token)
    return ExpectedDraft(probabilities, mean, arrival)


def test_off_takes_nothing():
    choice = Off().choose([candidate(0.9), candidate(0.9)], 0, cost_of(FLAT))
    assert choice == ((0, 0), 0.0, 2, None)


def test_fixed_takes_what_is_there_up_to_its_depth_and_never_waits():
    candidates = [
        candidate(*[0.1] * 9),
        candidate(0.9, expected=(growing(0.9, first_in=0.0001),), is_drafting=True),
        Candidate(EMPTY_CHAIN, 9),
    ]
    choice = Fixed(4).choose(candidates, 0, cost_of(EXPERTS))
    assert (choice.depths, choice.wait) == ((4, 1, 0), 0)


def test_sync_waits_as_long_as_a_source_is_drafting_and_tokens_are_missing():
    sync, cost = Sync(3), cost_of(F16)
    assert sync.choose([candidate(0.9, 0.9, is_drafting=True)], 0, cost).wait == SYNC_PATIENCE_S
    assert sync.choose([candidate(0.9, 0.9, is_drafting=False)], 0, cost)[:2] == ((2,), 0)
    assert sync.choose([candidate(*[0.9] * 5, is_drafting=True)], 0, cost)[:2] == ((3,), 0)


def test_sync_waits_for_no_more_than_can_be_committed():
    assert Sync(3).choose([candidate(0.9, n_useful=1, is_drafting=True)], 0, cost_of(F16))[:2] == ((1,), 0)


def test_sync_does_not_wait_while_prompts_are_processed():
    assert Sync(3).choose([Candidate(EMPTY_CHAIN, 9, is_drafting=True)], 5, cost_of(F16))[:2] == ((0,), 0)


def test_sync_waits_for_the_slowest_sequence():
    candidates = [candidate(*[0.9] * 3, is_drafting=True), candidate(0.9, is_drafting=True)]
    assert Sync(3).choose(candidates, 0, cost_of(F16)).wait > 0


@pytest.mark.parametrize("policy", [Fixed(0), Sync(0), Off()])
def test_depth_0_is_no_speculation(policy):
    assert policy.choose([candidate(0.9, is_drafting=True)], 0, cost_of(FLAT))[:2] == ((0,), 0)
