"""What a plan predicts is compared with what was measured."""

import pytest

from bench.plan import compare


def row(name, rate):
    return {"arrangement": name, "tokens_per_second": rate, "low": rate - 5, "high": rate + 5}


PLAN = {"arrangements": [row("none", 20.0), row("engine", 44.0), row("far", 90.0)], "fastest": "engine"}


def test_predictions_are_divided_by_what_was_measured():
    rows = compare(PLAN, {"none": 20.0, "engine": 40.0})
    assert [each["predicted_to_measured"] for each in rows] == pytest.approx([1.0, 1.1])


def test_what_was_not_measured_has_no_row():
    assert [each["arrangement"] for each in compare(PLAN, {"none": 20.0, "engine": 40.0})] == [
        "none",
        "engine",
    ]


def test_the_chosen_one_is_compared_with_the_fastest():
    rows = compare(PLAN, {"none": 50.0, "engine": 40.0})
    assert [(each["chosen"], each["to_best"]) for each in rows] == [("", 1.0), ("yes", 0.8)]
