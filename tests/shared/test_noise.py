import numpy as np
import pytest

from shared.noise import gumbel

TOKENS = np.arange(50_000, dtype=np.int32)
PINNED = [0.8114343651844833, -0.715471954673673, 1.003578140532804]


def test_the_noise_is_a_function_of_its_key():
    assert np.array_equal(gumbel(1, 2, TOKENS), gumbel(1, 2, TOKENS))


def test_the_noise_of_a_token_does_not_depend_on_the_others_asked_for():
    assert np.array_equal(gumbel(1, 2, TOKENS)[[7, 3]], gumbel(1, 2, np.array([7, 3], np.int32)))


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
    """Lead and back may be of different versions: the same key must mean the same noise."""
    assert gumbel(42, 7, np.array([0, 1, 4095], np.int32)) == pytest.approx(PINNED, abs=1e-12)
