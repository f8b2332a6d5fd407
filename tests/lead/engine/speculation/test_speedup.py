"""How many times faster than without drafts."""

import pytest

from lead.engine.speculation.speedup import SpeedupEstimate


def learned(*steps):
    speedup = SpeedupEstimate()
    for n_tokens, n_plain in steps:
        speedup.learn(n_tokens, n_plain)
    return speedup.value


def test_before_some_steps_it_is_not_known():
    assert learned() is None
    assert learned(*[(2, 1.0)] * 7) is None
    assert learned(*[(2, 1.0)] * 8) == 2


def test_long_steps_count_more_than_short_ones():
    assert learned(*[(1, 1.0), (3, 1.0), (4, 2.0)] * 20) == pytest.approx(2, rel=0.02)


def test_it_follows_a_change_within_a_hundred_steps():
    assert learned(*[(3, 1.0)] * 500, *[(1, 1.0)] * 100) == pytest.approx(1, abs=0.3)


def test_steps_of_no_time_say_nothing():
    assert learned(*[(1, 0.0)] * 20) is None
