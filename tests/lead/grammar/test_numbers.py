import random
import re
from decimal import Decimal

import pytest

from lead.grammar.lark import lark_grammar
from lead.grammar.numbers import ANY_NUMBER, decimal_of, number_between

BOUNDS = ["0", "1", "-1", "0.5", "-0.5", "10", "99", "100", "0.25", "-0.001", "12.34", "1.205", "9.99"]
SHIFTS = ["0", "1", "-1", "0.1", "-0.1", "0.001", "-0.001", "10", "-10", "87.5"]


@pytest.mark.parametrize(
    ("texts", "fit"),
    [
        (["0", "-0.5", "3.14159", "6.02e23", "-1E-9", "9" * 16, f"0.{'3' * 16}"], True),
        (["9" * 17, f"0.{'3' * 17}", "1e100", "01", "1.", ".5", "+1"], False),
    ],
)
def test_numbers_of_up_to_16_digits_before_and_after_the_point_are_written(texts, fit):
    assert {bool(re.fullmatch(ANY_NUMBER, text)) for text in texts} == {fit}


@pytest.mark.parametrize("seed", range(12))
def test_a_range_has_exactly_the_numbers_between_its_bounds(accepts, seed):
    rng = random.Random(seed)
    lower, upper = sorted(Decimal(each) for each in rng.sample(BOUNDS, 2))
    over, under = rng.random() < 0.5, rng.random() < 0.5
    grammar = lark_grammar(
        ["start: NUMBER", f"NUMBER: {number_between(lower, upper, over=over, under=under)}"]
    )
    for bound in (lower, upper):
        for number in (bound + Decimal(shift) for shift in SHIFTS):
            fits = (lower < number if over else lower <= number) and (
                number < upper if under else number <= upper
            )
            assert accepts(grammar, f"{number:f}") == fits, (lower, upper, over, under, number)


@pytest.mark.parametrize(("lower", "upper", "text"), [(3, None, "1234567"), (None, -2, "-2.5")])
def test_a_range_may_be_open(accepts, lower, upper, text):
    bounds = [None if bound is None else Decimal(bound) for bound in (lower, upper)]
    grammar = lark_grammar(["start: NUMBER", f"NUMBER: {number_between(*bounds, over=False, under=False)}"])
    assert accepts(grammar, text)
    assert not accepts(grammar, "0")


def test_a_range_that_is_empty_has_no_expression():
    assert not number_between(Decimal(0), Decimal(0), over=False, under=True)


def test_a_decimal_is_the_number_as_it_is_written_and_of_a_finite_number_alone():
    assert decimal_of(0.1) == Decimal("0.1")
    assert [decimal_of(each) for each in (True, "1", None, float("nan"), float("inf"))] == [None] * 5
