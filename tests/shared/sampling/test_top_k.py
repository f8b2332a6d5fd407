import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.sampling.top_k import candidates_for_top_k, top_k


def rows(n_values, n_max=3000):
    """Rows of many lengths, with few different values, so that there are ties, or with many."""
    return st.builds(
        lambda seed, n: np.random.default_rng(seed).integers(0, n_values, n).astype(np.float32),
        st.integers(0, 1 << 32),
        st.integers(1, n_max),
    )


def straightforward(values, k):
    return np.lexsort((np.arange(len(values)), -values))[:k]


@given(rows(n_values=1 << 20) | rows(n_values=5) | rows(n_values=1), st.integers(1, 400))
def test_it_is_the_front_of_the_sorted_values_and_ties_go_to_the_lowest_index(values, k):
    assert top_k(values, k).tolist() == straightforward(values, k).tolist()


@given(st.integers(0, 1 << 32), st.sampled_from([4096, 32_000, 65_536, 128_256, 151_937]), st.booleans())
def test_it_holds_at_the_sizes_of_vocabularies(seed, n, many_ties):
    values = np.random.default_rng(seed).normal(size=n).astype(np.float32).round(0 if many_ties else 3)
    assert top_k(values, 40).tolist() == straightforward(values, 40).tolist()


@given(rows(n_values=1 << 20) | rows(n_values=9, n_max=200_000), st.integers(1, 100))
def test_every_value_that_reaches_the_bound_is_a_candidate(values, k):
    k = min(k, len(values))
    candidates, bound = candidates_for_top_k(values, k)
    assert candidates.tolist() == np.flatnonzero(values >= bound).tolist()
    assert len(candidates) >= k


@pytest.mark.parametrize("n", [4096, 128_000])
def test_of_values_that_differ_few_are_candidates(n):
    values = np.random.default_rng(0).normal(size=n).astype(np.float32)
    assert len(candidates_for_top_k(values, 40)[0]) < 100


def test_equal_values_are_not_moved_even_if_all_but_a_few_are(monkeypatch):
    n_moved = []
    partition = np.partition
    monkeypatch.setattr(
        np, "partition", lambda values, k: n_moved.append(len(values)) or partition(values, k)
    )
    for n_others in (0, 10, 39, 40, 41, 500):
        values = np.full(128_000, -40, np.float32)
        values[1000 : 1000 + n_others] = np.arange(n_others)
        assert top_k(values, 40).tolist() == straightforward(values, 40).tolist()
    assert sum(n_moved) < 1000


@pytest.mark.parametrize("n", [5, 5000])
def test_infinities_are_the_largest_and_the_smallest(n):
    values = np.zeros(n, np.float32)
    values[[1, 2]] = [-np.inf, np.inf]
    assert top_k(values, 3).tolist() == [2, 0, 3]
    assert top_k(values, n)[-1] == 1


@pytest.mark.parametrize("n_nan", [1, 1990, 2000])
def test_a_nan_is_less_than_every_number(n_nan):
    values = np.arange(2000, dtype=np.float32)
    values[:n_nan] = np.nan
    top = top_k(values, 20)
    assert len(top) == 20
    n_numbers = min(20, 2000 - n_nan)
    assert top[:n_numbers].tolist() == list(range(1999, 1999 - n_numbers, -1))


@pytest.mark.parametrize("k", [0, -1])
def test_none_are_none(k):
    assert top_k(np.ones(4), k).tolist() == []


@given(
    rows(n_values=60) | rows(n_values=5) | rows(n_values=60, n_max=200_000),
    st.integers(1, 100),
    st.integers(0, 30),
)
def test_a_value_that_is_far_above_all_others_may_be_the_only_one(values, k, distance):
    offset = np.float32(-distance)
    top, expected = top_k(values, k, offset).tolist(), straightforward(values, k).tolist()
    if top != expected:
        assert top == expected[:1]
        assert (np.delete(values, top) < values[top[0]] + offset).all()


@pytest.mark.parametrize("at", [0, 2285, 127_998, 127_999])
def test_one_that_is_alone_is_found_without_the_others(at):
    values = np.zeros(128_000, np.float32)
    values[at] = 4
    assert top_k(values, 40, np.float32(-3)).tolist() in ([at], straightforward(values, 40).tolist())
    assert len(top_k(values, 40, np.float32(-5))) == 40
    values[127_960] = 2
    assert len(top_k(values, 40, np.float32(-3))) == 40


def test_where_a_nan_is_none_is_alone():
    values = np.zeros(5000, np.float32)
    values[[7, 9]] = [9, np.nan]
    assert len(top_k(values, 40, np.float32(-3))) == 40
