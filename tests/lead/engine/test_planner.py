"""The planner chooses a depth for each offer."""

from hypothesis import given
from hypothesis import strategies as st

from lead.engine.planner import FixedDepth, Offer


def test_no_offers_no_depths():
    assert FixedDepth(4).depths([]) == []


def test_the_fixed_depth_limits_long_drafts():
    assert FixedDepth(4).depths([Offer("s", 9)]) == [4]


def test_short_drafts_are_verified_whole():
    assert FixedDepth(4).depths([Offer("s", 3), Offer("t", 0)]) == [3, 0]


def test_depth_zero_switches_speculation_off():
    assert FixedDepth(0).depths([Offer("s", 3)]) == [0]


@given(st.integers(0, 64), st.lists(st.integers(0, 64)))
def test_no_depth_exceeds_its_offer(depth, counts):
    depths = FixedDepth(depth).depths([Offer("s", n) for n in counts])
    assert all(0 <= chosen <= n for chosen, n in zip(depths, counts, strict=True))
