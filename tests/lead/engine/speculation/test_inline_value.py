"""Given these steps, these chances and this price of a draft token: so many rounds, for these sequences."""

import pytest

from lead.engine.speculation.adaptive import Adaptive
from lead.engine.speculation.arrivals import Arrival
from lead.engine.speculation.draft_chain import EMPTY_CHAIN, DraftChain
from lead.engine.speculation.inline_drafting import InlineOffer
from lead.engine.speculation.policy import Candidate, ExpectedDraft, Fixed, Sync
from lead.engine.speculation.step_cost import StepCost

T1 = 0.04
FLAT = dict.fromkeys(range(1, 34), 1.0)
F16 = {1: 1, 2: 1.28, 3: 1.43, 4: 1.51, 5: 1.68, 6: 1.80, 8: 2.20}


def cost_of(table, seconds=T1):
    cost = StepCost()
    for n, ratio in table.items():
        cost.learn(n, seconds * ratio)
    return cost


def candidate(*probabilities, mean=0.7, n_most=8, own=(), **more):
    chain = DraftChain(tuple(range(len(probabilities))), ("a",) * len(probabilities), probabilities)
    return Candidate(chain, 99, inline=InlineOffer(own, mean, n_most), **more)


def choose(price, *candidates, table=F16, n_prompt=0):
    """`price`: of a draft token, in T(1)."""
    drafts = cost_of({n: 0.8 + 0.2 * n for n in range(1, 9)}, price * T1)
    return Adaptive().choose(candidates, n_prompt, cost_of(table), drafts)


def n_rounds(price, *candidates, **more):
    drafting = choose(price, *candidates, **more).drafting
    return drafting.n_rounds if drafting else 0


def test_a_cheap_drafter_is_asked_for_as_much_as_pays_to_verify():
    assert n_rounds(0.001, candidate(mean=0.9), table=FLAT) == 8


@pytest.mark.parametrize(("dear", "cheap"), [(0.3, 0.1), (0.1, 0.003)])
def test_the_dearer_a_token_is_the_fewer_are_asked_for(dear, cheap):
    assert n_rounds(dear, candidate()) < n_rounds(cheap, candidate())


@pytest.mark.parametrize("price", [0.02, 0.3])
def test_a_useless_drafter_is_not_asked(price):
    assert n_rounds(price, candidate(mean=0.02)) == 0


def test_a_price_above_a_step_is_never_paid():
    assert n_rounds(1.1, candidate(mean=0.99), table=FLAT) == 0


def test_what_has_to_be_caught_up_with_counts():
    behind = candidate()._replace(inline=InlineOffer((), 0.7, 8, 1, catch_up=2 * T1))
    assert n_rounds(0.003, behind) == 0


def test_a_doubtful_draft_is_not_extended():
    assert n_rounds(0.1, candidate(0.9, 0.9, 0.05, own=(0.9, 0.9, 0.05))) == 0


def test_a_draft_goes_on_after_its_tokens():
    choice = choose(0.003, candidate(0.95, own=(0.95,), mean=0.9))
    assert choice.drafting
    assert 0 < choice.drafting.n_rounds <= 7


def test_what_backs_have_pushed_is_taken_instead():
    assert n_rounds(0.3, candidate(0.9, 0.9, 0.9, 0.9)) == 0


def test_instead_of_waiting_for_a_slow_back_it_drafts():
    slow = ExpectedDraft((), 0.9, Arrival(0.5 * T1, 1, 0.5 * T1))
    choice = choose(0.02, candidate(mean=0.8, expected=(slow,)))
    assert choice.drafting
    assert choice.wait == 0


def test_for_a_back_that_is_about_to_answer_it_waits():
    soon = ExpectedDraft((), 0.95, Arrival(0.01 * T1, 4, 0.01 * T1))
    choice = choose(0.4, candidate(mean=0.6, expected=(soon,)))
    assert choice.drafting is None
    assert choice.wait > 0


def test_beside_prompts_it_drafts_what_pays():
    assert n_rounds(0.003, candidate(mean=0.9), n_prompt=4, table=FLAT) > 0


def test_several_sequences_are_drafted_for_in_one_round():
    choice = choose(0.01, candidate(mean=0.9), candidate(mean=0.9), table=FLAT)
    assert choice.drafting
    assert choice.drafting.candidates == (0, 1)


def test_a_sequence_whose_draft_is_doubtful_is_left_out():
    doubtful = candidate(0.01, own=(0.01,), mean=0.7)
    choice = choose(0.1, candidate(mean=0.95), doubtful, table=FLAT)
    assert choice.drafting
    assert choice.drafting.candidates == (0,)


def test_a_sequence_that_cannot_be_drafted_for_is_left_out():
    choice = choose(0.01, Candidate(EMPTY_CHAIN, 99), candidate(mean=0.9), table=FLAT)
    assert choice.drafting
    assert choice.drafting.candidates == (1,)


def test_a_draft_ends_where_its_survival_is_no_longer_worth_a_token():
    choice = choose(0.1, candidate(mean=0.9))
    assert choice.drafting
    assert 0.05 < choice.drafting.min_survival < 0.5


@pytest.mark.parametrize("policy", [Fixed(3), Sync(3)])
def test_the_policies_for_comparison_draft_up_to_their_depth(policy):
    cost = cost_of(F16)
    assert policy.choose([candidate(0.9, 0.9)], 0, cost, cost).drafting
    assert policy.choose([candidate(0.9, 0.9, 0.9)], 0, cost, cost).drafting is None


def test_where_another_source_shows_that_a_token_is_hard_none_is_drafted():
    doubtful = candidate(mean=0.9)._replace(inline=InlineOffer((), 0.9, 8, prospects=(0.05,)))
    assert n_rounds(0.1, candidate(mean=0.9)) > 0
    assert n_rounds(0.1, doubtful) == 0


def test_what_several_sequences_may_draft_is_worth_what_other_sources_let_expect():
    doubtful = candidate(mean=0.9)._replace(inline=InlineOffer((), 0.9, 8, prospects=(0.05,) * 8))
    assert choose(0.1, candidate(mean=0.9), doubtful).drafting.candidates == (0,)
