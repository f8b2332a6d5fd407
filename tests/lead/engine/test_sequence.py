"""A sequence knows how many more tokens it may get."""

import pytest

from lead.engine.sequence import EngineSequence
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
