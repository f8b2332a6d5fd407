import pytest

from lead.engine.speculation.batching import LikeliestFirst
from lead.engine.speculation.constants import MAX_DEPTH
from lead.engine.speculation.drafts import DraftToken
from lead.engine.speculation.forecast import Candidate
from lead.engine.speculation.memory_batching import EqualDepths, Replaying, batching_for
from lead.engine.speculation.policy import Adaptive
from shared.llama.memory_traits import MemoryTraits
from shared.step_cost import StepCost
from tests.lead.engine.speculation.support import depths_of
from tests.toy_engine import make_limits

DRAFTS = [(0.9, 0.5), (0.8,)]


def test_equal_depths_takes_the_same_number_of_each_as_far_as_it_has_them():
    assert EqualDepths().expected(DRAFTS, 2) == pytest.approx([2, 3.7, 4.2])
    assert [EqualDepths().depths(DRAFTS, n) for n in range(3)] == [(0, 0), (1, 1), (2, 1)]


def test_equal_depths_grows_by_a_token_for_each_sequence():
    assert EqualDepths().sizes(5, [2, 1, 0]) == range(5, 12, 3)
    assert list(EqualDepths().sizes(2, [20, 20]))[-1] == 2 + MAX_DEPTH


@pytest.mark.parametrize("batching", [LikeliestFirst(), EqualDepths()])
def test_for_a_lone_sequence_both_do_the_same(batching):
    draft = [(0.9, 0.5, 0.2)]
    assert batching.expected(draft, 2) == pytest.approx([1, 1.9, 2.4])
    assert batching.depths(draft, 2) == (2,)
    assert list(batching.sizes(1, [3])) == [1, 2, 3, 4]


# Memory without rollback


def sloped(slope):
    """T(n) = 1 + slope * (n - 1)."""
    cost = StepCost()
    for n in range(1, 33):
        cost.learn(n, 1 + slope * (n - 1))
    return cost


def candidate(n, probability, n_fed=1):
    return Candidate("s", n, n_fed, chain=[DraftToken(7, "a", probability)] * n)


def seconds(*candidates, n_prompt=0, slope=0.1, max_depth=2):
    return Replaying(sloped(slope)).seconds(range(max_depth + 1), candidates, n_prompt)


@pytest.mark.parametrize(
    ("traits", "batching"),
    [
        ({}, LikeliestFirst),
        ({"traits": MemoryTraits(n_rollback=3, equal_lengths=True)}, EqualDepths),
        ({"traits": MemoryTraits(n_rollback=0, n_step_checkpoints=1)}, Replaying),
    ],
)
def test_the_memory_decides_how_drafts_share_a_step(traits, batching):
    assert type(batching_for(make_limits(**traits))) is batching


@pytest.mark.parametrize(
    ("probability", "replayed"),
    # One draft token: half of the time 1 token is replayed. Two: a quarter of the time 2 more.
    [(1.0, (0, 0, 0)), (0.5, (0, 0.5 * 0.1, 0.5 * 0.1 + 0.25 * 0.2))],
    ids=["a certain draft costs its width", "a rejection what the next step replays"],
)
def test_a_draft_costs(probability, replayed):
    widths = (1.0, 1.1, 1.2)
    expected = [width + more for width, more in zip(widths, replayed, strict=True)]
    assert seconds(candidate(2, probability)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("n_fed", "n_prompt", "expected"),
    [((4,), 0, 1.3), ((1, 3), 0, 1.1 + 1.1), ((1,), 4, 1.4), ((1, 1), 4, 1.2 + 1.3)],
    ids=["one span", "spans of unequal lengths", "a prompt", "a prompt beside two"],
)
def test_a_step_without_drafts_costs_all_its_passes(n_fed, n_prompt, expected):
    candidates = [candidate(0, 0.5, n_fed=n) for n in n_fed]
    assert seconds(*candidates, n_prompt=n_prompt)[0] == pytest.approx(expected)


def test_after_many_replayed_tokens_the_policy_lets_the_state_catch_up():
    policy = Adaptive(Replaying(sloped(0.3)))
    assert depths_of(policy.choose([candidate(3, 0.75)], 0)) > (0,)
    assert depths_of(policy.choose([candidate(3, 0.75, n_fed=10)], 0)) == (0,)
