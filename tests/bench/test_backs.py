import pytest

from bench.backs import Answer, summarize


def test_numbers_of_backs_are_compared_with_none_by_their_medians():
    speeds = {0: (10.0, 30.0, 20.0), 64: (19.0, 1.0, 40.0)}
    answers = [Answer(n, speed, 1 / speed, 2.0) for n in speeds for speed in speeds[n]]
    none, many = summarize(answers)
    assert (none["n_backs"], none["tokens_per_second"], none["ratio"]) == (0, 20.0, 1.0)
    assert (many["n_backs"], many["ratio"]) == (64, pytest.approx(0.95))
    assert (many["low"], many["high"], many["engine_ms"]) == (1.0, 40.0, 2.0)
