"""What a plan predicts is compared with what was measured."""

import pytest

from bench.plan import compare


def row(name, rate):
    return {"arrangement": name, "tokens_per_second": rate, "low": rate - 5, "high": rate + 5}


PLAN = {"arrangements": [row("none", 20.0), row("engine", 44.0), row("far", 90.0)], "fastest": "engine"}


def test_predictions_are_divided_by_what_was_measured():
    rows = compare(PLAN, {"none": 20.0, "engine": 40.0})
    assert [each["predicted_to_measured"] for each in rows] == pytest.approx([1.0, 1.1])
