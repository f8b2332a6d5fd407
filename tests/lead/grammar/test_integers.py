import re

from hypothesis import given
from hypothesis import strategies as st

from lead.grammar.integers import integer_between


def as_regular_expression(expression):
    """GBNF of literals, classes, groups, repetitions and alternatives only."""
    return re.compile(re.sub(r'"([^"]*)"', r"\1", expression).replace(" ", ""))


@given(st.integers(-1200, 1200), st.integers(0, 1200))
def test_exactly_the_integers_between_both_bounds_are_written(least, more):
    most = least + more
    expression = as_regular_expression(integer_between(least, most))
    for value in {least - 1, least, least + more // 2, most, most + 1, 0, -least, 10 * least, most // 10}:
        assert bool(expression.fullmatch(str(value))) == (least <= value <= most), value


@given(st.integers(-(10**20), 10**20), st.integers(-(10**20), 10**20))
def test_one_bound_is_enough(bound, value):
    at_least = as_regular_expression(integer_between(bound, None))
    assert at_least.fullmatch(str(bound))
    assert not at_least.fullmatch(str(min(value, bound - 1)))
    at_most = as_regular_expression(integer_between(None, bound))
    assert at_most.fullmatch(str(bound))
    assert not at_most.fullmatch(str(max(value, bound + 1)))


def test_zeros_in_front_are_not_written():
    expression = as_regular_expression(integer_between(0, 100))
    assert not any(expression.fullmatch(text) for text in ["00", "01", "-0", "007", ""])
