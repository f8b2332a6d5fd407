"""The likeliest draft tokens of all sequences share a step."""

import pytest

from lead.engine.speculation.batching import LikeliestFirst
from lead.engine.speculation.constants import MAX_DEPTH

DRAFTS = [(0.9, 0.5), (0.8,)]


def test_the_likeliest_tokens_come_first_whose_ever_they_are():
    assert LikeliestFirst().expected(DRAFTS, 3) == pytest.approx([2, 2.9, 3.7, 4.2])
    assert [LikeliestFirst().depths(DRAFTS, n) for n in range(4)] == [(0, 0), (1, 0), (1, 1), (2, 1)]


def test_a_step_grows_by_one_token_up_to_the_maximum():
    assert LikeliestFirst().sizes(5, [2, 1]) == range(5, 9)
    assert LikeliestFirst().sizes(2, [MAX_DEPTH, 5])[-1] == 2 + MAX_DEPTH
