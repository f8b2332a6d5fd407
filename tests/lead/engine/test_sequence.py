"""A sequence knows how many more tokens it may get."""

import pytest

from lead.engine.context_shift import ContextShift
from lead.engine.sequence import EngineSequence
from tests.fakes import GREEDY, toy_sampler


def sequence(n_prompt=3, max_tokens=None, **more):
    tokens = list(range(n_prompt))
    return EngineSequence("s", tokens, lambda: toy_sampler(GREEDY, tokens), max_tokens, **more)


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


@pytest.mark.parametrize(
    ("shift", "n_tokens", "is_complete"),
    [(None, 9, False), (None, 10, True), (ContextShift(10, 2), 10, False), (ContextShift(10, 2), 15, True)],
)
def test_only_without_a_shift_a_full_context_ends_a_sequence(shift, n_tokens, is_complete):
    grown = sequence(3, max_tokens=12, shift=shift)
    grown.append(range(3, n_tokens))
    assert grown.is_complete(10) is is_complete


def test_a_shift_leaves_the_kept_tokens_and_the_newest():
    grown = sequence(3, shift=ContextShift(10, 2))
    grown.append(range(3, 10))
    assert (grown.is_context_full, grown.n_left(10)) == (True, 0)
    assert grown.shift_context() == 2
    grown.append([10])
    assert (grown.context, grown.tokens) == ([0, 1, 6, 7, 8, 9, 10], list(range(11)))
    assert (grown.is_context_full, grown.n_left(10)) == (False, 3)


def test_a_sequence_that_another_process_began_has_the_context_that_it_had_there():
    assert sequence(11, shift=ContextShift(10, 2)).context == [0, 1, 6, 7, 8, 9, 10]


def test_checkpoints_of_discarded_tokens_are_forgotten():
    grown = sequence(10, shift=ContextShift(10, 4), checkpoints=(2, 4, 7))
    assert grown.checkpoints == (2, 4)


def test_even_an_endless_text_has_a_bound(monkeypatch):
    monkeypatch.setattr("lead.engine.sequence.MAX_TOKENS", 25)
    grown = sequence(10, shift=ContextShift(20, 4))
    assert (grown.n_left(20), grown.is_complete(20)) == (10, False)
    grown.append(range(10, 20))
    grown.shift_context()
    assert grown.n_left(20) == 5
    grown.append(range(20, 25))
    assert grown.is_complete(20)
