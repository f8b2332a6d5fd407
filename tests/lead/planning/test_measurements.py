"""How certain a measured acceptance is."""

import pytest

from lead.planning.measurements import AcceptanceRate


def test_the_interval_is_wilsons():
    # Newcombe (1998), Statistics in Medicine 17, table I: 81 of 263 and 15 of 148, method 3
    assert AcceptanceRate(81, 263).interval() == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert AcceptanceRate(15, 148).interval() == pytest.approx((0.0624, 0.1605), abs=1e-4)


@pytest.mark.parametrize(("n_right", "low", "high"), [(0, 0.0, 0.2), (16, 0.8, 1.0)])
def test_it_stays_within_zero_and_one(n_right, low, high):
    assert AcceptanceRate(n_right, 16).interval() == pytest.approx((low, high), abs=0.01)
