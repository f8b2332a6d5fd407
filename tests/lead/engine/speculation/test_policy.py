"""The policies that the adaptive one is compared with."""

import pytest

from lead.engine.speculation.policy import SYNC_PATIENCE_S, DraftOrder, Fixed, Sync, Wait
from tests.lead.engine.speculation.support import (
    EXPERTS,
    F16,
    FLAT,
    NOTHING,
    candidate,
    cost_of,
    depths_of,
    growing,
    inline,
)


def test_fixed_takes_what_is_there_up_to_its_depth_and_never_waits():
    candidates = [
        candidate(*[0.1] * 9),
        candidate(0.9, awaited=(growing(0.9, first_in=0.0001),), is_drafting=True),
        NOTHING,
    ]
    choice = Fixed(4).choose(candidates, 0, cost_of(EXPERTS))
    assert depths_of(choice) == (4, 1, 0)


def test_sync_waits_as_long_as_a_source_is_drafting_and_tokens_are_missing():
    sync, cost = Sync(3), cost_of(F16)
    assert sync.choose([candidate(0.9, 0.9, is_drafting=True)], 0, cost) == Wait(SYNC_PATIENCE_S)
    assert depths_of(sync.choose([candidate(0.9, 0.9, is_drafting=False)], 0, cost)) == (2,)
    assert depths_of(sync.choose([candidate(*[0.9] * 5, is_drafting=True)], 0, cost)) == (3,)


def test_sync_waits_for_no_more_than_can_be_committed():
    assert depths_of(Sync(3).choose([candidate(0.9, n_useful=1, is_drafting=True)], 0, cost_of(F16))) == (1,)


def test_sync_does_not_wait_while_prompts_are_processed():
    assert depths_of(Sync(3).choose([candidate(is_drafting=True)], 5, cost_of(F16))) == (0,)


def test_sync_waits_for_the_slowest_sequence():
    candidates = [candidate(*[0.9] * 3, is_drafting=True), candidate(0.9, is_drafting=True)]
    assert Sync(3).choose(candidates, 0, cost_of(F16)) == Wait(SYNC_PATIENCE_S)


@pytest.mark.parametrize("policy", [Fixed(0), Sync(0)])
def test_depth_0_is_no_speculation(policy):
    assert depths_of(policy.choose([candidate(0.9, is_drafting=True)], 0, cost_of(FLAT))) == (0,)


@pytest.mark.parametrize("policy", [Fixed(3), Sync(3)])
def test_a_drafter_in_the_engine_drafts_up_to_the_depth(policy):
    cost, further = cost_of(F16), inline()
    assert policy.choose([candidate(0.9, 0.9, inline=further)], 0, cost, cost) == DraftOrder(("s",))
    assert depths_of(policy.choose([candidate(*[0.9] * 3, inline=further)], 0, cost, cost)) == (3,)
