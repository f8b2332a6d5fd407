"""The sums of speculation, as `GET /v1/speculation` shows them."""

from collections import Counter

from lead.engine.speculation.speculation_stats import SpeculationStats


def test_wasted_tokens_are_those_verified_in_vain():
    assert SpeculationStats(n_draft_tokens=9, n_accepted_tokens=5).describe()["n_wasted_tokens"] == 4


def test_depths_are_shown_from_low_to_high():
    assert list(SpeculationStats(depths=Counter([10, 2, 2])).describe()["depths"].items()) == [
        ("2", 2),
        ("10", 1),
    ]
