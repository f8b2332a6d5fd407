"""Which texts are kept in host memory, and what becomes of them."""

import itertools

import pytest

from shared.cache_edits import ForgetState, LoadText, StoreText, Trim
from shared.prompt_cache import PromptCache
from shared.slot_cache import SlotCache

TEXT = list(range(100, 140))


@pytest.fixture
def prompts():
    """Room for 100 tokens."""
    return PromptCache(100, itertools.count(1))


def holding(tokens, index=0):
    cache = SlotCache(index)
    cache.add(tokens)
    return cache


def texts(prompts):
    return [text.tokens for text in prompts.texts]


def test_the_text_of_a_slot_is_stored_and_stays_there(prompts):
    cache = holding(TEXT, index=3)
    assert prompts.store(cache) == [StoreText(3, 1)]
    assert (texts(prompts), len(prompts), cache.tokens) == ([TEXT], 40, TEXT)


def test_what_is_no_longer_valid_is_removed_before(prompts):
    cache = holding(TEXT)
    cache.keep(30)
    assert prompts.store(cache) == [Trim(0, 30), StoreText(0, 1)]


def test_a_text_that_is_too_long_is_not_stored(prompts):
    assert prompts.store(holding(list(range(101)))) is None
    assert prompts.store(holding(list(range(100)))) is not None


def test_the_beginning_of_a_stored_text_is_there_already(prompts):
    prompts.store(holding(TEXT))
    assert prompts.store(holding(TEXT[:35])) == []
    assert texts(prompts) == [TEXT]


def test_a_text_replaces_its_beginning(prompts):
    prompts.store(holding(TEXT))
    assert prompts.store(holding([*TEXT, 1])) == [ForgetState(1), StoreText(0, 2)]
    assert texts(prompts) == [[*TEXT, 1]]


def test_the_least_recently_used_gives_way(prompts):
    first, second, third = ([n, *TEXT] for n in range(3))
    prompts.store(holding(first))
    prompts.store(holding(second))
    prompts.load(prompts.texts[0], SlotCache(0), 10)
    assert prompts.store(holding(third)) == [ForgetState(2), StoreText(0, 3)]
    assert texts(prompts) == [first, third]


def test_a_slot_gets_the_beginning_of_a_text_which_stays_stored(prompts):
    prompts.store(holding(TEXT))
    cache = SlotCache(1)
    assert prompts.load(prompts.texts[0], cache, 10) == [LoadText(1, 1, 10)]
    assert (cache.tokens, cache.n_physical, len(prompts)) == (TEXT[:10], 10, 40)


def test_a_text_that_was_dropped_just_now_can_be_loaded(prompts):
    prompts.store(holding(TEXT))
    text = prompts.texts[0]
    assert prompts.drop(text) == [ForgetState(1)]
    assert prompts.load(text, SlotCache(1), 10) == [LoadText(1, 1, 10)]
    assert len(prompts) == 0
