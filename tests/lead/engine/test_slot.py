"""A sequence knows how much it may still get; a slot knows what it has to decode."""

import pytest

from lead.engine.sequence import EngineSequence
from lead.engine.slot import Slot
from shared.slot_cache import SlotCache
from tests.fakes import GREEDY, toy_sampler


def sequence(n_prompt=3, max_tokens=None):
    tokens = list(range(n_prompt))
    return EngineSequence("s", tokens, lambda: toy_sampler(GREEDY, tokens), max_tokens)


def test_a_new_sequence_has_generated_nothing():
    assert sequence().n_generated == 0


def test_what_follows_the_prompt_is_generated():
    grown = sequence(n_prompt=3)
    grown.tokens += [7, 8]
    assert grown.n_generated == 2


@pytest.mark.parametrize(
    ("max_tokens", "n_ctx", "n_left"), [(None, 10, 7), (5, 10, 5), (9, 10, 7), (5, 4, 1), (None, 3, 0)]
)
def test_a_sequence_may_fill_the_context_or_its_limit_whichever_is_less(max_tokens, n_ctx, n_left):
    assert sequence(3, max_tokens).n_left(n_ctx) == n_left


def test_what_was_generated_counts_towards_both_limits():
    grown = sequence(3, max_tokens=5)
    grown.tokens += [7, 8]
    assert grown.n_left(100) == 3
    assert grown.n_left(6) == 1


def test_an_empty_slot_has_nothing_to_decode():
    assert Slot(SlotCache(0)).n_to_decode == 0


def test_committed_tokens_that_are_not_cached_are_to_be_decoded():
    slot = Slot(SlotCache(4, [0, 1], 2), sequence(n_prompt=5))
    assert (slot.index, slot.n_to_decode) == (4, 3)
