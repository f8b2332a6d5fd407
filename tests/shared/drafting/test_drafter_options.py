import pytest

from shared.drafting.drafter_options import DrafterOptions
from tests.fake_backs import cells_for


def shared(n_cells=4000, n_slots=4, n_train=2048, n_branches=3):
    return DrafterOptions.for_cache(
        n_cells, n_slots=n_slots, n_train=n_train, n_ahead=16, n_branches=n_branches
    )


@pytest.mark.parametrize("n_branches", [0, 1, 8])
@pytest.mark.parametrize("n_slots", [1, 3, 4])
def test_windows_and_branches_together_fit_into_the_cache(n_slots, n_branches):
    options = shared(n_slots=n_slots, n_branches=n_branches)
    assert cells_for(options) <= 4000
    assert options.n_model_slots == n_slots * (1 + n_branches)


def test_no_window_is_longer_than_the_model_was_trained_for():
    assert shared(n_cells=100_000).n_window == 2048


def test_branches_take_a_little_of_the_window():
    assert shared(n_branches=0).n_window == 1000
    assert 900 < shared().n_window < 1000


@pytest.mark.parametrize(("n_cells", "n_window", "n_branches"), [(256, 52, 2), (80, 20, 0)])
def test_in_a_small_cache_reading_comes_before_branches(n_cells, n_window, n_branches):
    options = shared(n_cells=n_cells)
    assert (options.n_window, options.n_branches) == (n_window, n_branches)


@pytest.mark.parametrize(("n_ahead", "n"), [(16, 8), (1, 1), (0, 1)])
def test_the_lead_checks_about_half_of_what_it_asks_for_at_once(n_ahead, n):
    assert DrafterOptions(1, 100, n_ahead).n_per_step == n
