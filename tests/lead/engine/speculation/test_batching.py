import pytest

from lead.engine.speculation.batching import EqualDepths, LikeliestFirst

DRAFTS = [(0.9, 0.5), (0.8,)]


def test_likeliest_first_takes_the_likeliest_tokens_of_all_sequences():
    assert LikeliestFirst().expected(DRAFTS, 3) == pytest.approx([2, 2.9, 3.7, 4.2])
    assert [LikeliestFirst().depths(DRAFTS, n) for n in range(4)] == [(0, 0), (1, 0), (1, 1), (2, 1)]


def test_likeliest_first_grows_by_single_tokens():
    assert LikeliestFirst().unit(3) == 1
    assert LikeliestFirst().max_units([2, 1], 32) == 3
    assert LikeliestFirst().max_units([20, 20], 32) == 32


def test_equal_depths_takes_the_same_number_of_each_as_far_as_it_has_them():
    assert EqualDepths().expected(DRAFTS, 2) == pytest.approx([2, 3.7, 4.2])
    assert [EqualDepths().depths(DRAFTS, n) for n in range(3)] == [(0, 0), (1, 1), (2, 1)]


def test_equal_depths_grows_by_a_token_for_each_sequence():
    assert EqualDepths().unit(3) == 3
    assert EqualDepths().max_units([2, 1], 32) == 2
    assert EqualDepths().max_units([20, 20], 32) == 16


@pytest.mark.parametrize("batching", [LikeliestFirst(), EqualDepths()])
def test_for_a_lone_sequence_both_do_the_same(batching):
    draft = [(0.9, 0.5, 0.2)]
    assert batching.expected(draft, 2) == pytest.approx([1, 1.9, 2.4])
    assert batching.depths(draft, 2) == (2,)
    assert (batching.unit(1), batching.max_units([3], 32)) == (1, 3)
