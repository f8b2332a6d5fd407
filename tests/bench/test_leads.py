import pytest

from bench.leads import Run, summarize


def test_cases_are_compared_with_two_backs_by_their_medians():
    runs = [
        Run("none", (5.0, 5.0)),
        Run("two, half a core each", (9.0, 11.0)),
        *(Run("one for both", (8.0, speed)) for speed in (1.0, 12.0, 30.0)),
        Run("two, each for both", (10.0, 10.0)),
    ]
    none, two, one, _ = summarize(runs)
    assert (none["ratio"], two["ratio"], one["ratio"]) == (0.5, 1.0, 1.0)
    assert (two["share"], one["share"]) == (pytest.approx(0.9), pytest.approx(0.8))
