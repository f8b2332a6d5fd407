"""A sequence knows how many more tokens it may get."""

import pytest

from lead.engine.context_shift import ContextShift
from lead.engine.sequence import EngineSequence
from tests.fakes import GREEDY, submit, toy_sampler


def sequence(n_prompt=3, max_tokens=None, **more):
    tokens = list(range(n_prompt))
    request = submit(tokens=tokens, max_tokens=max_tokens)
    return EngineSequence(request, lambda _: toy_sampler(GREEDY, tokens), **more)


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
