import pytest

from bench.stats import Spread, accepted_runs, bound_speedup, extended, percentile, survival

FLAT = {1: 0.1, 2: 0.1, 3: 0.1, 4: 0.1, 5: 0.1}


def test_a_spread_is_median_least_and_greatest():
    assert Spread.of([3.0, 1.0, 8.0]) == Spread(3.0, 1.0, 8.0)


def test_a_spread_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no values"):
        Spread.of([])


@pytest.mark.parametrize(("share", "expected"), [(0.5, 10), (0.95, 19), (1.0, 20), (0.0, 1)])
def test_percentiles_are_of_the_nearest_rank(share, expected):
    assert percentile(list(range(20, 0, -1)), share) == expected


def test_a_percentile_of_nothing_is_zero():
    assert percentile([], 0.5) == 0


def test_each_own_token_of_the_target_ends_a_step():
    assert accepted_runs([True, True, False, False, True, False]) == [2, 0, 1]


def test_a_step_that_the_end_of_the_text_cut_off_does_not_count():
    assert accepted_runs([False, True, True]) == [0]


def test_survival_is_the_share_of_steps_that_came_so_far():
    assert survival([0, 1, 2, 2], 3) == [0.75, 0.5, 0.0]


def test_there_is_no_survival_without_steps():
    assert survival([], 3) == []


def test_beyond_what_was_measured_the_last_acceptance_repeats():
    assert extended([0.8, 0.4], 4) == pytest.approx([0.8, 0.4, 0.2, 0.1])


def test_a_single_share_is_its_own_ratio():
    assert extended([0.5], 3) == pytest.approx([0.5, 0.25, 0.125])


def test_nothing_measured_extends_to_nothing_accepted():
    assert extended([], 2) == [0.0, 0.0]


def test_what_was_never_accepted_stays_so():
    assert extended([0.0, 0.0], 3) == [0.0, 0.0, 0.0]


def test_with_steps_of_one_price_the_bound_takes_all_tokens():
    assert bound_speedup([0.5, 0.25, 0.125, 0.0625], FLAT) == pytest.approx(1.9375)


def test_the_bound_takes_the_best_depth():
    """Depth 1 gives 1.9 tokens for 1.2 steps; depth 2 gives 2.7 for 3."""
    assert bound_speedup([0.9, 0.8], {1: 1.0, 2: 1.2, 3: 3.0}) == pytest.approx(1.9 / 1.2)


def test_a_step_that_is_not_monotone_is_no_obstacle():
    """Four tokens cost less than three."""
    assert bound_speedup([1.0, 1.0, 1.0], {1: 1.0, 2: 1.7, 3: 2.2, 4: 1.5}) == pytest.approx(4 / 1.5)


def test_depth_zero_is_a_candidate():
    assert bound_speedup([0.1], {1: 1.0, 2: 5.0}) == 1.0


def test_widths_may_be_missing():
    assert bound_speedup([1.0, 1.0], {1: 1.0, 3: 1.5}) == pytest.approx(2.0)
