"""Given this table, these acceptances and these arrivals, that depth and that wait."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.engine.speculation.adaptive import Adaptive
from lead.engine.speculation.arrivals import Arrival
from lead.engine.speculation.draft_chain import EMPTY_CHAIN, MAX_DEPTH, DraftChain
from lead.engine.speculation.policy import (
    Candidate,
    ExpectedDraft,
)
from lead.engine.speculation.step_cost import StepCost

T1 = 0.04
FLAT = dict.fromkeys(range(1, 40), 1.0)
# Ratios measured with llama.cpp on one core, 300M parameters.
F16 = {1: 1, 2: 1.28, 3: 1.43, 4: 1.51, 5: 1.68, 6: 1.80, 8: 2.20}
Q8_0 = {1: 1, 2: 1.28, 3: 1.52, 4: 1.80, 5: 2.63, 6: 2.91, 8: 2.82}
Q4_0 = {1: 1, 2: 1.69, 3: 2.16, 4: 1.51, 5: 2.26, 6: 2.74, 8: 2.92}
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


def taught(gain, cost):
    """A policy that has been `gain` times faster than without drafts."""
    policy = Adaptive()
    for _ in range(50):
        policy.learn(1, gain, cost.seconds(1), cost)
    return policy


def depths(table, *candidates, n_prompt=0):
    choice = Adaptive().choose(candidates, n_prompt, cost_of(table))
    assert choice.wait == 0
    return choice.depths


def wait(table, *candidates, n_prompt=0):
    return Adaptive().choose(candidates, n_prompt, cost_of(table)).wait


# How deep


def test_without_drafts_the_depth_is_0():
    assert depths(F16, Candidate(EMPTY_CHAIN, 99)) == (0,)


def test_where_more_tokens_cost_nothing_all_are_taken():
    assert depths(FLAT, candidate(*[0.5] * 9)) == (9,)


@pytest.mark.parametrize(
    ("table", "probability", "depth"),
    [
        (F16, 0.95, 7),  # as deep as the table is known to be cheap
        (F16, 0.75, 5),
        (F16, 0.20, 0),
        (Q8_0, 0.85, 3),  # five tokens cost much more than four
        (Q8_0, 0.75, 2),
        (Q8_0, 0.27, 0),
        (EXPERTS, 0.80, 0),
    ],
)
def test_the_depth_follows_from_the_table_and_the_chances(table, probability, depth):
    assert depths(table, candidate(*[probability] * 7)) == (depth,)


@pytest.mark.parametrize("probability", [0.6, 0.75, 0.9])
def test_depth_3_is_chosen_over_2_where_four_tokens_cost_less_than_three(probability):
    assert depths(Q4_0, candidate(*[probability] * 3)) == (3,)


def test_where_four_tokens_cost_less_than_three_depth_2_is_never_chosen():
    chosen = Counter(depths(Q4_0, candidate(*[probability / 100] * 6)) for probability in range(1, 100))
    assert (2,) not in chosen
    assert set(chosen) >= {(0,), (3,)}


def test_where_only_two_tokens_are_there_a_dip_at_four_is_out_of_reach():
    assert depths(Q4_0, candidate(0.6, 0.6)) == (0,)


def test_a_doubtful_token_ends_what_is_taken():
    assert depths(F16, candidate(0.95, 0.95, 0.05, 0.99, 0.99)) == (2,)


def test_a_doubtful_token_is_taken_for_the_sake_of_what_follows():
    assert depths(FLAT | {2: 1.3, 3: 1.3, 4: 1.3}, candidate(0.4, 0.99, 0.99)) == (3,)


def test_no_token_is_taken_that_could_not_be_committed():
    assert depths(FLAT, candidate(*[0.9] * 9, n_useful=2)) == (2,)


def test_the_depth_has_a_limit():
    assert depths(FLAT, candidate(*[1.0] * 60)) == (MAX_DEPTH,)


def test_the_choice_says_how_many_tokens_to_expect():
    choice = Adaptive().choose([candidate(0.5, 0.5), candidate(0.8)], 0, cost_of(FLAT))
    assert choice.n_expected == pytest.approx(1 + 0.5 + 0.25 + 1 + 0.8)


@given(
    ratios=st.lists(st.floats(0.3, 4), min_size=8, max_size=8),
    lines=st.lists(st.lists(st.floats(0, 1), max_size=3), min_size=1, max_size=2),
)
def test_no_other_depths_would_give_a_better_rate(ratios, lines):
    table = dict(enumerate([1.0, *ratios], start=1))
    cost = cost_of(table)

    def rate(some_depths):
        expected, n_tokens = 0.0, 0
        for probabilities, depth in zip(lines, some_depths, strict=True):
            survival = 1.0
            expected += 1
            for probability in probabilities[:depth]:
                survival *= probability
                expected += survival
            n_tokens += 1 + depth
        return expected / cost.seconds(n_tokens)

    chosen = depths(table, *[candidate(*probabilities) for probabilities in lines])
    best = max(rate(some) for some in product(*[range(len(probabilities) + 1) for probabilities in lines]))
    assert rate(chosen) == pytest.approx(best)


# Several sequences, and prompts


def test_the_next_place_goes_to_the_token_that_adds_most_of_any_sequence():
    table = {2: 1.0, 3: 1.1, 4: 1.2, 5: 1.3, 6: 2.9, 7: 3.5, 8: 4.0}
    assert depths(table, candidate(0.9, 0.3, 0.3), candidate(0.8, 0.8, 0.8)) == (1, 2)


def test_other_sequences_in_the_batch_may_make_drafts_cheap():
    alone = {1: 1, 2: 2.0, 3: 2.0, 4: 2.0}
    assert depths(alone, candidate(0.7)) == (0,)
    assert depths(alone, candidate(0.7), Candidate(EMPTY_CHAIN, 99)) == (1, 0)


def test_other_sequences_in_the_batch_may_make_drafts_expensive():
    assert depths(Q8_0, candidate(0.9)) == (1,)
    assert depths(Q8_0, candidate(0.9), *[Candidate(EMPTY_CHAIN, 99)] * 3) == (0, 0, 0, 0)


def test_a_sequence_without_drafts_gets_depth_0_beside_one_with_some():
    assert depths(FLAT, Candidate(EMPTY_CHAIN, 99), candidate(0.9, 0.9)) == (0, 2)


def test_prompts_in_the_batch_count():
    table = {1: 1.0, 2: 1.0, 3: 1.0, 17: 5.0, 18: 12.0, 19: 15.0}
    assert depths(table, candidate(0.9, 0.9)) == (2,)
    assert depths(table, candidate(0.9, 0.9), n_prompt=16) == (0,)


def test_beside_an_expensive_prompt_a_draft_costs_little():
    table = {1: 1.0, 2: 1.5, 100: 50.0, 132: 66.0}
    assert depths(table, candidate(0.45)) == (0,)
    assert depths({1: 1.0, 2: 1.5, 96: 50.0, 128: 51.0}, candidate(0.45), n_prompt=100) == (1,)


def test_prompts_alone_need_no_depths():
    assert Adaptive().choose([], 16, cost_of(F16)).depths == ()


# Waiting


def test_it_waits_for_a_token_that_comes_soon():
    assert wait(F16, Candidate(EMPTY_CHAIN, 99, (growing(first_in=0.001),))) > 0


def test_it_does_not_wait_for_a_token_that_comes_late():
    assert wait(F16, Candidate(EMPTY_CHAIN, 99, (growing(first_in=T1),))) == 0


def test_it_does_not_wait_for_a_token_that_is_likely_wrong():
    assert wait(F16, Candidate(EMPTY_CHAIN, 99, (growing(first_in=0.001, mean=0.1),))) == 0


def test_it_does_not_wait_without_sources():
    assert wait(F16, Candidate(EMPTY_CHAIN, 99)) == 0


def test_it_does_not_wait_where_another_token_would_not_be_taken_anyway():
    soon = growing(0.9, 0.9, 0.9, first_in=0.0005, mean=0.5)
    assert wait(Q8_0, candidate(0.9, 0.9, 0.9, expected=(soon,))) == 0


def test_it_does_not_wait_where_nothing_more_can_be_committed():
    assert wait(F16, Candidate(EMPTY_CHAIN, 0, (growing(first_in=0.001),))) == 0
    assert wait(F16, candidate(0.9, n_useful=1, expected=(growing(0.9, first_in=0.001),))) == 0


def test_it_does_not_wait_while_prompts_are_processed():
    assert wait(F16, Candidate(EMPTY_CHAIN, 99, (growing(first_in=0.001),)), n_prompt=1) == 0


def test_it_waits_until_as_many_tokens_are_there_as_pay():
    """Four tokens cost less than two: three draft tokens are worth a longer wait than one is."""
    prospect = growing(first_in=0.002, per_token=0.001, mean=0.75)
    candidates, cost = [Candidate(EMPTY_CHAIN, 99, (prospect,))], cost_of(Q4_0)
    assert taught(2, cost).choose(candidates, 0, cost).wait == pytest.approx(0.004)


def test_the_faster_things_go_the_less_it_waits():
    candidates, cost = [Candidate(EMPTY_CHAIN, 99, (growing(first_in=0.03, per_token=1.0),))], cost_of(FLAT)
    assert taught(1, cost).choose(candidates, 0, cost).wait == pytest.approx(0.03)
    assert taught(4, cost).choose(candidates, 0, cost).wait == 0


def test_a_guess_at_t_that_was_far_too_high_does_not_prevent_waiting():
    candidates, cost, policy = [candidate(0.9, 0.9, 0.9)], StepCost(), Adaptive()
    for _ in range(50):
        policy.learn(1, 4, T1 / 1000, cost)
    for n in (1, 4):
        cost.learn(n, T1 / 1000)
    assert policy.choose(candidates, 0, cost).depths == (3,)


def test_the_faster_things_go_the_fewer_doubtful_tokens_it_takes():
    candidates, cost = [candidate(0.9, 0.5, 0.5)], cost_of({1: 1, 2: 1.1, 3: 1.3, 4: 1.5})
    assert taught(1, cost).choose(candidates, 0, cost).depths == (2,)
    assert taught(4, cost).choose(candidates, 0, cost).depths == (1,)


def test_a_draft_that_is_there_makes_waiting_for_another_source_less_worthwhile():
    soon = growing(first_in=0.01)
    assert wait(F16, Candidate(EMPTY_CHAIN, 99, (soon,))) > 0
    assert wait(F16, candidate(0.9, 0.9, 0.9, expected=(soon,))) == 0


def test_one_sequence_s_wait_holds_up_all_so_it_must_pay_for_all():
    soon = growing(first_in=0.009, mean=0.85, per_token=1.0)
    assert wait(FLAT, Candidate(EMPTY_CHAIN, 99, (soon,))) > 0
    assert wait(FLAT, Candidate(EMPTY_CHAIN, 99, (soon,)), *[candidate(0.9, 0.9, 0.9)] * 5) == 0


def test_several_sequences_may_wait_together():
    soon = growing(first_in=0.004, per_token=1.0)
    assert wait(FLAT, *[Candidate(EMPTY_CHAIN, 99, (soon,))] * 3) == pytest.approx(0.004)


def test_the_soonest_of_several_sources_is_waited_for():
    late, soon = growing(first_in=0.5), growing(first_in=0.002, per_token=1.0)
    assert wait(FLAT, Candidate(EMPTY_CHAIN, 99, (late, soon))) == pytest.approx(0.002)


def test_a_slow_model_is_worth_a_wait_that_a_fast_one_is_not():
    candidates = [Candidate(EMPTY_CHAIN, 99, (growing(first_in=0.005, per_token=1.0),))]
    assert Adaptive().choose(candidates, 0, cost_of(F16, 0.070)).wait > 0
    assert Adaptive().choose(candidates, 0, cost_of(F16, 0.002)).wait == 0


@given(
    ratios=st.lists(st.floats(0.5, 4), min_size=7, max_size=7),
    there=st.lists(st.floats(0, 1), max_size=4),
    first_in=st.floats(0.0005, 0.2),
    per_token=st.floats(0, 0.1),
    mean=st.floats(0.01, 1),
)
def test_it_waits_only_if_that_is_worth_more_and_then_for_the_best(ratios, there, first_in, per_token, mean):
    """As long as nothing is learned, a second is worth what the best step without waiting makes of it."""
    cost = cost_of(dict(enumerate([1.0, *ratios], start=1)))

    def steps(probabilities):
        expected, survival = 1.0, 1.0
        yield expected, cost.seconds(1)
        for n, probability in enumerate(probabilities, start=1):
            survival *= probability
            expected += survival
            yield expected, cost.seconds(1 + n)

    rate = max(expected / seconds for expected, seconds in steps(there))

    def worth(probabilities, waited):
        return max(expected - rate * (seconds + waited) for expected, seconds in steps(probabilities))

    arrival = Arrival(first_in, 1, per_token)
    prospect = ExpectedDraft(tuple(there), mean, arrival)
    chosen = Adaptive().choose([candidate(*there, expected=(prospect,))], 0, cost).wait
    by_waiting = {
        arrival.when(n): worth([*there, *[mean] * n], arrival.when(n)) for n in range(1, 11 - len(there))
    }
    if chosen == 0:
        assert max(by_waiting.values()) <= 1e-6
    else:
        assert by_waiting[chosen] == pytest.approx(max(by_waiting.values()), abs=1e-6)
        assert by_waiting[chosen] > 0


# Exploration


def explored(table, n_choices, *candidates, cost=None):
    """How often each depth was chosen, with each step learned."""
    policy, cost = Adaptive(), cost or cost_of(table)
    chosen = Counter()
    for _ in range(n_choices):
        (depth,) = policy.choose(candidates, 0, cost).depths
        chosen[depth] += 1
        cost.learn(1 + depth, T1 * table[1 + depth])
    return chosen


def test_exploration_is_rare_and_next_to_the_best_choice():
    chosen = explored(F16 | {7: 2.0}, 4000, candidate(*[0.75] * 6))
    assert set(chosen) == {4, 5, 6}
    assert 0 < chosen[4] + chosen[6] <= 4000 / 32


def test_what_was_measured_lately_is_not_explored():
    assert explored(F16 | {7: 2.0}, 200, candidate(*[0.75] * 6)) == {5: 200}


def test_nothing_is_explored_that_is_not_there():
    assert explored(F16, 2000, Candidate(EMPTY_CHAIN, 99)) == {0: 2000}


def test_a_cost_that_fell_is_noticed():
    """Two tokens were dear while a neighbour was busy."""
    cost = cost_of({1: 1, 2: 3.0}, T1)
    chosen = explored(FLAT, 4000, candidate(0.8), cost=cost)
    assert chosen[1] > 1000


def test_a_depth_that_seems_slower_than_a_deeper_one_is_measured_again_soon():
    """The machine was busy in three of five rounds of calibration: four draft tokens seem a bad choice."""
    cost = StepCost()
    for ratio_of_5, n in product((2.3, F16[5], 2.3, F16[5], 2.3), range(1, 8)):
        cost.learn(n, T1 * (F16 | {5: ratio_of_5, 7: 2.0})[n])
    chosen = explored(F16 | {7: 2.0}, 500, candidate(*[0.85] * 4, 0.1, 0.1), cost=cost)
    assert chosen[4] > 250


def test_a_real_jump_in_t_is_seldom_measured_again():
    """Three draft tokens are dearer than four, for good."""
    step = {1: 1, 2: 1.28, 3: 1.4, 4: 2.5, 5: 1.7, 6: 2.2}
    chosen = explored(step, 8000, candidate(*[0.8] * 3, 0.05))
    assert 0 < chosen[3] < 8000 / 64
    assert chosen[4] > 8000 * 0.98


def test_it_does_not_wait_for_a_source_where_another_one_shows_that_its_token_will_be_wrong():
    soon = growing(first_in=0.1 * T1)
    assert wait(F16, candidate(expected=(soon,))) > 0
    assert wait(F16, candidate(expected=(soon._replace(prospects=(0.05,)),))) == 0


def test_of_a_source_beside_another_one_the_further_tokens_are_the_usual_ones():
    assert growing(first_in=0.0, mean=0.8)._replace(prospects=(0.3,)).further(3) == (0.3, 0.8, 0.8)
