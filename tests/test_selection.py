"""`make test ARGS='-m …'` selects among the tests that run without it, or among tests that it names."""

from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from _pytest.mark.expression import Expression

from tests import conftest
from tests.selection import LEFT_OUT, N_SHORT, selection, shortened


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
    """Each worker of a parallel run makes a selection of its parent's selection."""
    once = selection(expression)
    for markers in ((), ("real",), ("models",), ("real", "gpu")):
        assert selected(once, *markers) is selected(expression, *markers)


def cases(file, function, values):
    return [SimpleNamespace(path=Path(file), function=function, values=each) for each in values]


def test_short_proofs_have_some_cases_of_each_in_order_and_all_other_tests():
    few, many = cases("test_proof_a.py", "few", range(3)), cases("test_proof_a.py", "many", range(400))
    others = cases("test_b.py", "others", range(400))
    kept, left_out = shortened([*few, *many, *others])
    short = kept[len(few) : -len(others)]
    assert kept == [*few, *short, *others]
    assert (len(short), left_out) == (N_SHORT, [each for each in many if each not in short])


@pytest.mark.parametrize("n", [2, 3, 4, 11, 12])
def test_every_value_of_a_parameter_occurs_in_a_short_proof(n):
    kept, _ = shortened(cases("test_proof_a.py", "proof", product(range(12), range(n))))
    expected = [set(range(12)), set(range(n))]
    assert [set(values) for values in zip(*(case.values for case in kept), strict=True)] == expected


@pytest.mark.parametrize(
    ("when", "failed", "shown"),
    [("call", True, "\nFAILED a::b\n"), ("setup", True, "\nERROR a::b\n"), ("call", False, None)],
)
def test_a_failed_test_is_named_at_once(when, failed, shown):
    status = conftest.pytest_report_teststatus(SimpleNamespace(when=when, failed=failed, nodeid="a::b"))
    assert (status and status[1]) == shown


def test_a_path_that_does_not_exist_is_named():
    with pytest.raises(pytest.UsageError, match=r"no such file or folder: tests/nowhere\.py"):
        conftest.pytest_configure(SimpleNamespace(args=["tests", "tests/nowhere.py::test_it"]))
