import pytest

from bench.flood import FloodedAnswer, summarize


def test_floods_are_compared_with_none_by_their_medians():
    speeds = {"none": (10.0, 30.0, 20.0), "stale": (19.0, 1.0, 40.0)}
    answers = [FloodedAnswer(flood, speed, 1000 / speed, 1) for flood in speeds for speed in speeds[flood]]
    none, stale = summarize(answers)
    assert (none["tokens_per_second"], none["ratio"]) == (20.0, 1.0)
    assert (stale["ratio"], stale["cpu_ratio"]) == (pytest.approx(0.95), pytest.approx(20 / 19))
    assert (stale["low"], stale["high"], stale["n_ended"]) == (1.0, 40.0, 3)
