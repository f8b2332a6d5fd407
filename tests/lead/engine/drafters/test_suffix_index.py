"""The index remembers the two newest places of each n-gram, in whatever pieces the text arrives."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lead.engine.drafters.suffix_index import ORDERS, SuffixIndex

TEXTS = st.lists(st.integers(0, 3) | st.integers(0, 200_000), max_size=150)


def tables(index):
    return np.stack([*index._newest, *index._previous])


@given(TEXTS, st.sampled_from([1, 4, 16]))
def test_a_long_text_is_indexed_as_token_by_token(tokens, n_bits):
    at_once, one_by_one = SuffixIndex(n_bits), SuffixIndex(n_bits)
    at_once._extend_at_once(tokens)
    for end in range(1, len(tokens) + 1):
        one_by_one.extend(tokens[:end])
    assert np.array_equal(tables(at_once), tables(one_by_one))


@given(TEXTS, TEXTS)
def test_the_rest_of_a_text_is_indexed_at_once_behind_its_beginning(beginning, rest):
    whole, halves = SuffixIndex(4), SuffixIndex(4)
    whole._extend_at_once([*beginning, *rest])
    halves.extend(beginning)
    halves._extend_at_once([*beginning, *rest])
    assert np.array_equal(tables(whole), tables(halves))


def test_the_two_newest_places_of_the_end_are_found():
    index = SuffixIndex()
    tokens = [1, 2, 0, 1, 2, 0, 1, 2, 9, 1, 2]
    index.extend(tokens)
    assert sorted(index.places(tokens)) == [5, 8]


def test_a_longer_end_is_found_although_its_last_two_tokens_have_occurred_since():
    index = SuffixIndex()
    tokens = [5, 6, 7, 1, 2, 80, 1, 2, 81, 1, 2, 82, 5, 6, 7, 1, 2]
    index.extend(tokens)
    assert 5 in index.places(tokens)


def test_extending_by_nothing_changes_nothing():
    index = SuffixIndex()
    tokens = [1, 2, 1, 2, 1, 2]
    index.extend(tokens)
    before = tables(index).copy()
    index.extend(tokens)
    index.extend(tokens[:3])
    assert np.array_equal(before, tables(index))
    assert index.n_indexed == len(tokens) - 1


def test_memory_does_not_grow_with_the_text():
    index = SuffixIndex(8)
    index.extend([token % 1000 for token in range(100_000)])
    assert tables(index).shape == (2 * len(ORDERS), 256)
