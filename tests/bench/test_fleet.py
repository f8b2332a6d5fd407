import pytest

from bench.fleet import Answer, compare


def test_routers_are_compared_with_the_direct_answers_of_the_same_round():
    answers = {
        "direct": [Answer(0.010, 0.001), Answer(0.050, 0.005), Answer(0.030, 0.003)],
        "SMG": [Answer(0.012, 0.0011), Answer(0.052, 0.0051), Answer(0.033, 0.0032)],
    }
    direct, smg = compare(answers)
    assert (direct["way"], direct["first_more_ms"], direct["token_more_ms"]) == ("direct", 0, 0)
    assert smg["first_ms"] == pytest.approx(33)
    assert smg["first_more_ms"] == pytest.approx(2)
    assert smg["token_ms"] == pytest.approx(3.2)
    assert smg["token_more_ms"] == pytest.approx(0.1)
