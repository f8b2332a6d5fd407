"""Sparse distributions."""

import numpy as np
import pytest

from shared.translation.next_tokens import NextTokens

LOGITS = np.log(np.array([0.5, 1e-12, 0.3, 0.2], np.float32))
RANKS = np.array([3, 2, 1, 0], np.int32)


def tokens():
    return NextTokens.of(LOGITS)


def test_likely_tokens_keep_their_probabilities():
    assert tokens().ids.tolist() == [0, 2, 3]
    assert tokens().probabilities == pytest.approx([0.5, 0.3, 0.2])


@pytest.mark.parametrize(("token", "expected"), [(2, 0.3), (1, 0.0), (9, 0.0)])
def test_the_probability_of_a_token(token, expected):
    assert tokens().of_token(token) == pytest.approx(expected)


def test_a_range_of_ranks():
    assert tokens().in_range(RANKS, 0, 2).ids.tolist() == [2, 3]


def test_all_but_one():
    assert tokens().without(2).total == pytest.approx(0.7)


def test_the_likeliest():
    assert sorted(tokens().likeliest(2).ids.tolist()) == [0, 2]
    assert tokens().likeliest(9).total == pytest.approx(1.0)
