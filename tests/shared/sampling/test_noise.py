import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.sampling.noise import exceeding, gumbel

TOKENS = np.arange(50_000, dtype=np.int32)
PINNED = [0.8114343651844833, -0.715471954673673, 1.003578140532804]


@pytest.mark.parametrize("other", [(2, 2), (1, 3)])
def test_another_seed_or_position_gives_unrelated_noise(other):
    assert abs(np.corrcoef(gumbel(1, 2, TOKENS), gumbel(*other, TOKENS))[0, 1]) < 0.02


def test_the_noise_is_gumbel_distributed():
    """Kolmogorov-Smirnov against exp(-exp(-x)); 1.95 / sqrt(n) is the 0.999 quantile."""
    sample = np.sort(gumbel(3, 4, TOKENS))
    expected = np.exp(-np.exp(-sample))
    distance = np.abs(expected - np.arange(1, len(sample) + 1) / len(sample)).max()
    assert distance < 1.95 / np.sqrt(len(sample))


@pytest.mark.parametrize("seed", [0, (1 << 63) - 1])
@pytest.mark.parametrize("position", [0, 1 << 31])
def test_extreme_keys_give_finite_noise(seed, position):
    assert np.isfinite(gumbel(seed, position, TOKENS)).all()


def test_the_definition_never_changes():
    """Lead and back may have different versions: the same key must mean the same noise."""
    assert gumbel(42, 7, np.array([0, 1, 4095], np.int32)) == pytest.approx(PINNED, abs=1e-12)


def test_large_sets_of_tokens_have_the_noise_of_small_ones():
    every = gumbel(5, 6, TOKENS)
    assert np.array_equal(every, np.concatenate([gumbel(5, 6, part) for part in np.array_split(TOKENS, 7)]))


@given(st.integers(0, (1 << 63) - 1), st.integers(0, 1 << 31), st.integers(1, 40_000), st.floats(-5, 25))
def test_no_token_whose_noise_reaches_the_bound_is_missed(seed, position, n_tokens, bound):
    every = gumbel(seed, position, np.arange(n_tokens, dtype=np.int32))
    found = exceeding(seed, position, n_tokens, bound)
    assert np.setdiff1d(np.flatnonzero(every >= bound), found).tolist() == []
    assert found.tolist() == sorted(found.tolist())


@pytest.mark.parametrize("token", [0, 77, 16_383, 16_384, 49_999])
def test_a_token_reaches_a_bound_that_is_its_own_noise(token):
    bound = gumbel(1, 2, TOKENS)[token]
    assert token in exceeding(1, 2, len(TOKENS), float(bound))


@pytest.mark.parametrize("bound", [-3.0, 0.0, 4.0, 8.0])
def test_hardly_any_other_token_is_found(bound):
    n_right = int((gumbel(3, 4, TOKENS) >= bound).sum())
    assert n_right <= len(exceeding(3, 4, len(TOKENS), bound)) <= n_right + 1


@pytest.mark.parametrize(("bound", "n_found"), [(-1e300, 50_000), (-100, 50_000), (100, 0), (1e300, 0)])
def test_bounds_out_of_reach_are_reached_by_all_or_none(bound, n_found):
    assert len(exceeding(1, 2, len(TOKENS), bound)) == n_found
