from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.engine.speculation.arrivals import Arrival
from lead.engine.speculation.batching import LikeliestFirst
from lead.engine.speculation.constants import DEFAULTS, MAX_DEPTH
from lead.engine.speculation.memory_batching import EqualDepths
from lead.engine.speculation.policy import SYNC_PATIENCE_S, Adaptive, DraftOrder, Fixed, Sync, Verify, Wait
from shared.step_cost import StepCost
from tests.lead.engine.speculation.support import (
    EXPERTS,
    F16,
    FLAT,
    NOTHING,
    Q4_0,
    Q8_0,
    T1,
    candidate,
    cost_of,
    depths_of,
    future,
    growing,
    inline,
)


def taught(gain, cost):
    """A policy that has been `gain` times faster than without drafts."""
    policy = Adaptive(LikeliestFirst(cost))
    for _ in range(50):
        policy.learn(1, gain, cost.seconds(1))
    return policy


def depths(table, *candidates, n_prompt=0):
    choice = Adaptive(LikeliestFirst(cost_of(table))).choose(candidates, n_prompt)
    assert isinstance(choice, Verify)
    return depths_of(choice)


def waited(choice):
    return choice.seconds if isinstance(choice, Wait) else 0


def wait(table, *candidates, n_prompt=0):
    return waited(Adaptive(LikeliestFirst(cost_of(table))).choose(candidates, n_prompt))


# How deep


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


def test_where_four_tokens_cost_less_than_three_depth_2_is_never_chosen():
    chosen = Counter(depths(Q4_0, candidate(*[probability / 100] * 6)) for probability in range(1, 100))
    assert (2,) not in chosen
    assert set(chosen) >= {(0,), (3,)}


def test_the_depth_has_a_limit():
    assert depths(FLAT, candidate(*[1.0] * 60)) == (MAX_DEPTH,)


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


def test_prompts_in_the_batch_count():
    table = {1: 1.0, 2: 1.0, 3: 1.0, 17: 5.0, 18: 12.0, 19: 15.0}
    assert depths(table, candidate(0.9, 0.9)) == (2,)
    assert depths(table, candidate(0.9, 0.9), n_prompt=16) == (0,)


def test_beside_an_expensive_prompt_a_draft_costs_little():
    table = {1: 1.0, 2: 1.5, 100: 50.0, 132: 66.0}
    assert depths(table, candidate(0.45)) == (0,)
    assert depths({1: 1.0, 2: 1.5, 96: 50.0, 128: 51.0}, candidate(0.45), n_prompt=100) == (1,)


def test_prompts_alone_need_no_depths():
    assert Adaptive(LikeliestFirst(cost_of(F16))).choose([], 16) == Verify([])


# Waiting


def soon(*drafted, **more):
    return growing(*drafted, first_in=0.001, **more)


@pytest.mark.parametrize(
    ("given", "n_prompt", "waits"),
    [
        (candidate(awaited=(soon(),)), 0, True),
        (candidate(n_useful=0, awaited=(soon(n_max=0),)), 0, False),
        (candidate(0.9, n_useful=1, awaited=(soon(0.9, n_max=1),)), 0, False),
        (candidate(awaited=(soon(),)), 1, False),
        (candidate(awaited=(soon(next_ones=(0.05,)),)), 0, False),
    ],
    ids=["it comes soon", "nothing can be committed", "all is there", "a prompt", "others show it is wrong"],
)
def test_a_token_is_waited_for_if_that_pays(given, n_prompt, waits):
    assert (wait(F16, given, n_prompt=n_prompt) > 0) == waits


def test_it_waits_until_as_many_tokens_are_there_as_pay():
    """Four tokens cost less than two: three draft tokens are worth a longer wait than one token."""
    prospect = growing(first_in=0.002, per_token=0.001, mean=0.75)
    candidates, cost = [candidate(awaited=(prospect,))], cost_of(Q4_0)
    assert waited(taught(2, cost).choose(candidates, 0)) == pytest.approx(0.004)


def test_the_faster_things_go_the_less_it_waits():
    candidates, cost = [candidate(awaited=(growing(first_in=0.03, per_token=1.0),))], cost_of(FLAT)
    assert waited(taught(1, cost).choose(candidates, 0)) == pytest.approx(0.03)
    assert waited(taught(4, cost).choose(candidates, 0)) == 0


def test_a_guess_at_t_that_was_far_too_high_does_not_prevent_waiting():
    candidates, cost = [candidate(0.9, 0.9, 0.9)], StepCost()
    policy = Adaptive(LikeliestFirst(cost))
    for _ in range(50):
        policy.learn(1, 4, T1 / 1000)
    for n in (1, 4):
        cost.learn(n, T1 / 1000)
    assert depths_of(policy.choose(candidates, 0)) == (3,)


def test_no_step_counts_as_faster_than_one_without_drafts():
    cost = cost_of(FLAT)
    policy, late = taught(1, cost), [candidate(awaited=(growing(first_in=0.03, per_token=1.0),))]
    for _ in range(50):
        policy.learn(1, 1, cost.seconds(1) / 10)
    assert waited(policy.choose(late, 0)) == pytest.approx(0.03)


def test_a_step_in_which_the_machine_slept_makes_a_second_hardly_cheaper():
    cost = cost_of(FLAT)
    policy, late = taught(4, cost), [candidate(awaited=(growing(first_in=0.03, per_token=1.0),))]
    policy.learn(1, 4, 3 * 3600.0)
    for _ in range(50):
        policy.learn(1, 4, cost.seconds(1))
    assert waited(policy.choose(late, 0)) == 0


def test_the_faster_things_go_the_fewer_doubtful_tokens_it_takes():
    candidates, cost = [candidate(0.9, 0.5, 0.5)], cost_of({1: 1, 2: 1.1, 3: 1.3, 4: 1.5})
    assert depths_of(taught(1, cost).choose(candidates, 0)) == (2,)
    assert depths_of(taught(4, cost).choose(candidates, 0)) == (1,)


def test_one_sequence_s_wait_holds_up_all_so_it_must_pay_for_all():
    soon = growing(first_in=0.009, mean=0.85, per_token=1.0)
    assert wait(FLAT, candidate(awaited=(soon,))) > 0
    assert wait(FLAT, candidate(awaited=(soon,)), *[candidate(0.9, 0.9, 0.9)] * 5) == 0


def test_several_sequences_may_wait_together():
    soon = growing(first_in=0.004, per_token=1.0)
    assert wait(FLAT, *[candidate(awaited=(soon,))] * 3) == pytest.approx(0.004)


@pytest.mark.parametrize("others", [0, 1])
def test_of_two_sources_that_answer_at_once_the_one_worth_most_counts(others):
    """The other source has more expected tokens, but more tokens cost more than they are worth."""
    at = 0.4 * T1
    many, sure = (
        growing(0.5, first_in=at, per_token=0.0, mean=0.97),
        growing(first_in=at, per_token=9.0, mean=1.0),
    )
    table = dict.fromkeys(range(1, 3 + others), 1.0) | {n: 2.0 + n for n in range(3 + others, 12)}
    beside = [NOTHING] * others
    assert wait(table, candidate(0.1, awaited=(many,)), *beside) == 0
    assert wait(table, candidate(0.1, awaited=(sure,)), *beside) == pytest.approx(at)
    assert wait(table, candidate(0.1, awaited=(many, sure)), *beside) == pytest.approx(at)


def test_sequences_that_share_a_deeper_step_are_waited_for_together():
    """A unit has a token of each sequence. One sequence alone does not pay for it."""
    policy = Adaptive(EqualDepths(cost_of({1: 1, 2: 1.0, 3: 1.6, 4: 1.6})))
    soon, later = (growing(first_in=at, per_token=9.0) for at in (0.002, 0.004))
    together = [candidate(awaited=(soon,)), candidate(awaited=(later,))]
    assert waited(policy.choose(together, 0)) == pytest.approx(0.004)
    assert waited(policy.choose([together[0], NOTHING], 0)) == 0


def test_the_soonest_of_several_sources_is_waited_for():
    late, soon = growing(first_in=0.5), growing(first_in=0.002, per_token=1.0)
    assert wait(FLAT, candidate(awaited=(late, soon))) == pytest.approx(0.002)


@given(
    ratios=st.lists(st.floats(0.5, 4), min_size=7, max_size=7),
    there=st.lists(st.floats(0, 1), max_size=4),
    first_in=st.floats(0.0005, 0.2),
    per_token=st.floats(0, 0.1),
    mean=st.floats(0.01, 1),
)
def test_it_waits_only_if_that_is_worth_more_and_then_for_the_best(ratios, there, first_in, per_token, mean):
    """Until something is learned, a second is worth the gain per second of the best step without waiting."""
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
    prospect = future(*there, mean=mean, n_max=DEFAULTS.max_awaited, arrival=arrival)
    chosen = waited(Adaptive(LikeliestFirst(cost)).choose([candidate(*there, awaited=(prospect,))], 0))
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
    """The number of times that each depth was chosen. Each step is learned."""
    cost = cost or cost_of(table)
    policy = Adaptive(LikeliestFirst(cost))
    chosen = Counter()
    for _ in range(n_choices):
        (depth,) = depths_of(policy.choose(candidates, 0))
        chosen[depth] += 1
        cost.learn(1 + depth, T1 * table[1 + depth])
    return chosen


def test_exploration_is_rare_and_next_to_the_best_choice():
    chosen = explored(F16 | {7: 2.0}, 4000, candidate(*[0.75] * 6))
    assert set(chosen) == {4, 5, 6}
    assert 0 < chosen[4] + chosen[6] <= 4000 / 32


def test_what_was_measured_lately_is_not_explored():
    assert explored(F16 | {7: 2.0}, 120, candidate(*[0.75] * 6)) == {5: 120}


def test_nothing_is_explored_that_is_not_there():
    assert explored(F16, 2000, NOTHING) == {0: 2000}


def test_a_cost_that_fell_is_noticed():
    """Steps of two tokens were slow while a neighbor was busy."""
    cost = cost_of({1: 1, 2: 3.0}, T1)
    chosen = explored(FLAT, 4000, candidate(0.8), cost=cost)
    assert chosen[1] > 1000


def test_a_depth_that_seems_slower_than_a_deeper_one_is_measured_again_soon():
    """The machine was busy in three of five rounds of calibration, so four draft tokens seem a bad choice."""
    cost = StepCost()
    cost.learn_sweeps(
        (n, T1 * (F16 | {5: ratio_of_5, 7: 2.0})[n])
        for ratio_of_5, n in product((2.3, F16[5], 2.3, F16[5], 2.3), range(1, 8))
    )
    chosen = explored(F16 | {7: 2.0}, 1600, candidate(*[0.85] * 4, 0.1, 0.1), cost=cost)
    assert chosen[4] > 800


def test_a_real_jump_in_t_is_seldom_measured_again():
    """Steps with three draft tokens always take longer than steps with four."""
    step = {1: 1, 2: 1.28, 3: 1.4, 4: 2.5, 5: 1.7, 6: 2.2}
    chosen = explored(step, 8000, candidate(*[0.8] * 3, 0.05))
    assert 0 < chosen[3] < 8000 / 64
    assert chosen[4] > 8000 * 0.98


# Drafting in the engine


def choose(price, *candidates, table=F16, n_prompt=0):
    """`price`: the cost of a draft token, in T(1)."""
    drafts = cost_of({n: 0.8 + 0.2 * n for n in range(1, 9)}, price * T1)
    return Adaptive(LikeliestFirst(cost_of(table)), drafts).choose(candidates, n_prompt)


def drafting(*drafted, sequence="s", awaited=(), **more):
    """A candidate with these tokens, to which an inline drafter may add."""
    return candidate(*drafted, sequence=sequence, awaited=awaited, inline=inline(**more))


def test_what_the_engine_could_draft_is_worth_less_than_what_is_there_by_its_part_of_a_round():
    drafts = cost_of({n: 0.8 + 0.2 * n for n in range(1, 9)}, 0.1 * T1)
    candidates = [drafting(mean=0.9, n_max=1), drafting(mean=0.8, n_max=1, sequence="t")]
    step = Adaptive(LikeliestFirst(cost_of(F16)), drafts)._next_step(candidates, 0)
    price = step.rate * drafts.seconds(2) / 2
    assert step.yields(drafts)[:3] == pytest.approx([2, 2.9 - price, 3.7 - 2 * price])
    assert step.yields(None)[:3] == pytest.approx([2, 2.9, 3.7])


def drafting_on(*drafted, sequence="s", **more):
    """A candidate whose tokens are all the inline drafter's own."""
    return candidate(*drafted, sequence=sequence, inline=inline(*drafted, **more))


def n_rounds(price, *candidates, **more):
    choice = choose(price, *candidates, **more)
    return choice.n_rounds if isinstance(choice, DraftOrder) else 0


def test_a_cheap_drafter_is_asked_for_as_much_as_pays_to_verify():
    assert n_rounds(0.001, drafting(mean=0.9), table=FLAT) == 8


def test_the_dearer_a_token_is_the_fewer_are_asked_for():
    assert n_rounds(0.3, drafting()) < n_rounds(0.1, drafting()) < n_rounds(0.003, drafting())


@pytest.mark.parametrize(
    ("price", "given", "table"),
    [
        (0.02, drafting(mean=0.02), F16),
        (0.3, drafting(mean=0.02), F16),
        (1.1, drafting(mean=0.99), FLAT),
        (0.003, drafting(catch_up=2 * T1), F16),
        (0.1, drafting_on(0.9, 0.9, 0.05), F16),
        (0.3, drafting(0.9, 0.9, 0.9, 0.9), F16),
        (0.1, drafting(mean=0.9, next_ones=(0.05,)), F16),
    ],
    ids=[
        "useless",
        "and dear",
        "above a step",
        "behind",
        "doubtful",
        "backs have pushed",
        "others show it is hard",
    ],
)
def test_a_drafter_is_not_asked_where_that_does_not_pay(price, given, table):
    assert n_rounds(price, given, table=table) == 0


def test_a_draft_goes_on_after_its_tokens():
    choice = choose(0.003, drafting_on(0.95, mean=0.9))
    assert 0 < choice.n_rounds <= 7


def test_instead_of_waiting_for_a_slow_back_it_drafts():
    slow = growing(first_in=0.5 * T1)
    choice = choose(0.02, drafting(mean=0.8, awaited=(slow,)))
    assert isinstance(choice, DraftOrder)


def test_for_a_back_that_is_about_to_answer_it_waits():
    soon = growing(first_in=0.01 * T1, n_first=4, mean=0.95)
    choice = choose(0.4, drafting(mean=0.6, awaited=(soon,)))
    assert isinstance(choice, Wait)


def test_beside_prompts_it_drafts_what_pays():
    assert n_rounds(0.003, drafting(mean=0.9), n_prompt=4, table=FLAT) > 0


@pytest.mark.parametrize(
    ("price", "others", "drafted_for"),
    [
        pytest.param(0.01, [drafting(sequence="t", mean=0.9)], ("s", "t"), id="both"),
        pytest.param(0.1, [drafting_on(0.01, sequence="t")], ("s",), id="one has a doubtful draft"),
        pytest.param(0.01, [NOTHING], ("s",), id="one cannot be drafted for"),
    ],
)
def test_sequences_are_drafted_for_together_if_that_pays(price, others, drafted_for):
    assert choose(price, drafting(mean=0.95), *others, table=FLAT).sequences == drafted_for


def test_a_draft_ends_where_it_is_no_longer_worth_a_token():
    choice = choose(0.1, drafting(mean=0.9))
    assert 0.05 < choice.min_probability < 0.5


def test_what_several_sequences_may_draft_is_worth_what_other_sources_let_expect():
    doubtful = drafting(sequence="t", mean=0.9, next_ones=(0.05,) * 8)
    assert choose(0.1, drafting(mean=0.9), doubtful).sequences == ("s",)


# The policies that the adaptive one is compared with


def test_fixed_takes_what_is_there_up_to_its_depth_and_never_waits():
    candidates = [
        candidate(*[0.1] * 9),
        candidate(0.9, awaited=(growing(0.9, first_in=0.0001),), is_drafting=True),
        NOTHING,
    ]
    choice = Fixed(4).choose(candidates, 0)
    assert depths_of(choice) == (4, 1, 0)


def drafted(n, *, is_drafting=True, **more):
    return candidate(*[0.9] * n, is_drafting=is_drafting, **more)


@pytest.mark.parametrize(
    ("candidates", "n_prompt", "verified"),
    [
        ([drafted(2)], 0, None),
        ([drafted(2, is_drafting=False)], 0, (2,)),
        ([drafted(5)], 0, (3,)),
        ([drafted(1, n_useful=1)], 0, (1,)),
        ([drafted(0)], 5, (0,)),
        ([drafted(3), drafted(1)], 0, None),
    ],
    ids=[
        "tokens are missing",
        "nobody drafts",
        "its depth",
        "no more can be committed",
        "a prompt",
        "the slowest",
    ],
)
def test_sync_waits_while_somebody_drafts_what_is_missing(candidates, n_prompt, verified):
    choice = Sync(3).choose(candidates, n_prompt)
    assert choice == Wait(SYNC_PATIENCE_S) if verified is None else depths_of(choice) == verified


@pytest.mark.parametrize("policy", [Fixed(0), Sync(0)])
def test_depth_0_is_no_speculation(policy):
    assert depths_of(policy.choose([candidate(0.9, is_drafting=True)], 0)) == (0,)


@pytest.mark.parametrize("policy", [Fixed(3), Sync(3)])
def test_a_drafter_in_the_engine_drafts_up_to_the_depth(policy):
    further = inline()
    assert policy.choose([candidate(0.9, 0.9, inline=further)], 0) == DraftOrder(("s",))
    assert depths_of(policy.choose([candidate(*[0.9] * 3, inline=further)], 0)) == (3,)
