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


def test_predicted_and_actual_rates_stand_side_by_side():
    report = SpeculationStats(
        expected_tokens=10.0, expected_seconds=4.0, actual_tokens=9, actual_seconds=3.0
    ).describe()
    assert (report["predicted_tokens_per_second"], report["actual_tokens_per_second"]) == (2.5, 3.0)


def test_before_any_step_there_are_no_rates():
    report = SpeculationStats().describe()
    assert (report["predicted_tokens_per_second"], report["actual_tokens_per_second"]) == (None, None)
