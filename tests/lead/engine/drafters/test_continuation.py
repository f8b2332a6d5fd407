"""Matches are measured exactly; following one gives its continuation and how far the others agree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.engine.drafters.continuation import LONGEST_MATCH, Match, confidence, follow, match_length

FEW_KINDS = st.lists(st.integers(0, 1), max_size=50)


@given(FEW_KINDS, FEW_KINDS)
def test_a_match_is_as_long_as_the_common_ending(text, other):
    pairs = list(zip(reversed(text), reversed(other), strict=False))
    n = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    assert match_length(text, len(text), other, len(other)) == min(n, LONGEST_MATCH)


def test_a_match_ends_where_it_is_said_to_end():
    assert match_length([1, 2, 3, 9], 3, [7, 2, 3, 8, 8], 3) == 2


def test_confidence_lies_between_0_and_1():
    assert 0 < confidence(2, 1, 5) < confidence(10_000, 5, 5) < 1


@pytest.mark.parametrize("length", [2, 5, 32])
def test_confidence_rises_with_agreement(length):
    disputed = [confidence(length, n, 4) for n in (1, 2, 3)]
    ranking = [*disputed, confidence(length, 1, 1), confidence(length, 4, 4)]
    assert ranking == sorted(set(ranking))


def test_another_match_that_differed_once_is_ignored_afterwards():
    text = [1, 2, 50, 51, 0, 1, 2, 60, 51]
    tokens, (first, second) = follow(text, [Match(2, 2), Match(2, 7)], 2, wraps=False)
    assert tokens == [50, 51]
    assert first == confidence(2, 1, 2)
    assert second == confidence(3, 1, 1)


def test_another_match_whose_text_has_ended_does_not_agree():
    text = [1, 2, 50, 51, 1, 2, 50]
    _, confidences = follow(text, [Match(2, 2), Match(2, 6)], 2, wraps=False)
    assert confidences == [confidence(2, 2, 2), confidence(3, 1, 2)]


def test_another_match_goes_on_with_its_period():
    text = [7, 7, 7, 7]
    tokens, confidences = follow(text, [Match(3, 3), Match(2, 2)], 4, wraps=True)
    assert tokens == [7, 7, 7, 7]
    assert confidences == [confidence(3 + i, 2, 2) for i in range(4)]


def test_a_text_that_does_not_wrap_ends():
    assert follow([1, 2, 3], [Match(2, 2)], 5, wraps=False)[0] == [3]
    assert follow([1, 2, 3], [Match(2, 3)], 5, wraps=False) == ([], [])
