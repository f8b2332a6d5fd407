"""`make test ARGS='-m …'` selects among the tests that run without it, or those that it names."""

import pytest
from _pytest.mark.expression import Expression

from tests.selection import LEFT_OUT, selection


def selected(expression, *markers):
    return Expression.compile(selection(expression)).evaluate(lambda name, **_: name in markers)


@pytest.mark.parametrize("marker", LEFT_OUT)
def test_what_is_left_out_runs_only_when_it_is_named(marker):
    expressions = ("", "real", "not real", "real or not real", marker, f"real and {marker}", f"not {marker}")
    found = {expression for expression in expressions if selected(expression, "real", marker)}
    assert found == {marker, f"real and {marker}"}


def test_what_is_named_is_not_all_that_has_the_marker():
    assert selected("models", "models")
    assert not selected("models", "models", "gpu")


@pytest.mark.parametrize(
    ("expression", "found"), [("", True), ("real", False), ("not real", True), ("models or not real", True)]
)
def test_a_test_without_markers(expression, found):
    assert selected(expression) is found


@pytest.mark.parametrize("expression", ["", "not real", "models or real"])
def test_a_selection_of_a_selection_is_the_same(expression):
    """Each worker of a parallel run makes it of what it is given by the one that starts it."""
    once = selection(expression)
    for markers in ((), ("real",), ("models",), ("real", "gpu")):
        assert selected(once, *markers) is selected(expression, *markers)
