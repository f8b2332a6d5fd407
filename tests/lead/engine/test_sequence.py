"""A sequence knows how many more tokens it may get."""

import pytest

from lead.engine.sequence import EngineSequence
from tests.fakes import engine_sequence, submit


def endless(n_ctx, checkpoints=()):
    """Of its 10 tokens the first 4 are kept."""
    request = submit(tokens=range(10)).model_copy(update={"n_keep": 4})
    return EngineSequence(request, n_ctx, lambda _: None, checkpoints)


@pytest.mark.parametrize(
    ("max_tokens", "n_ctx", "n_left"), [(None, 10, 7), (5, 10, 5), (9, 10, 7), (5, 4, 1), (None, 3, 0)]
)
def test_a_sequence_may_fill_the_context_or_its_limit_whichever_is_less(max_tokens, n_ctx, n_left):
    assert engine_sequence("s", range(3), n_ctx, max_tokens=max_tokens).n_left == n_left


def test_what_was_generated_counts_towards_both_limits():
    for n_ctx, n_left in ((100, 3), (6, 1)):
        grown = engine_sequence("s", range(3), n_ctx, max_tokens=5)
        grown.tokens += [7, 8]
        assert grown.n_left == n_left


def test_checkpoints_of_discarded_tokens_are_forgotten():
    assert endless(10, (2, 4, 7)).checkpoints == (2, 4)


def test_even_an_endless_text_has_a_bound(monkeypatch):
    monkeypatch.setattr("lead.engine.sequence.MAX_TOKENS", 25)
    grown = endless(20)
    assert (grown.n_left, grown.is_complete) == (10, False)
    grown.append(range(10, 20))
    grown.shift_context()
    assert grown.n_left == 5
    grown.append(range(20, 25))
    assert grown.is_complete
