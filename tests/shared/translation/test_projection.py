"""Draft tokens as target tokens."""

from shared.translation.projection import NONE, Projection
from tests.shared.translation.toys import longest_first

DRAFT = longest_first([b"a", b"b", b"ab", b"", b"x"])
TARGET = longest_first([b"b", b"a", b"aba"])


def projected():
    return Projection(DRAFT, TARGET)


def test_a_token_with_the_same_bytes_is_the_projection():
    assert projected().whole[0] == 1


def test_a_longer_token_counts_for_the_first_token_of_its_bytes():
    assert projected().whole[2] == 1


def test_a_token_without_bytes_has_no_projection():
    assert projected().whole[3] == NONE


def test_bytes_that_the_target_cannot_say_have_no_projection():
    assert projected().whole[4] == NONE


def test_the_first_token_of_any_bytes():
    assert [projected().first(data) for data in (b"abab", b"b", b"")] == [2, 0, NONE]


def test_exact_counterparts_are_counted():
    assert projected().share_exact == 2 / len(projected().draft)
