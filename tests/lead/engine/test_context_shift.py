"""The context depends only on the length of the text, and always leaves room for a token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.engine.context_shift import ContextShift


def one_by_one(n_ctx, n_keep, n_tokens):
    """The context of the text 0, 1, 2, …, shifted each time it is full."""
    context = []
    for token in range(n_tokens):
        context.append(token)
        if len(context) == n_ctx:
            del context[n_keep : n_keep + (n_ctx - n_keep) // 2]
    return context


@given(n_ctx=st.integers(2, 40), n_keep=st.integers(0, 40), n_tokens=st.integers(0, 200))
def test_it_is_what_shifting_one_token_after_the_other_leaves(n_ctx, n_keep, n_tokens):
    n_keep = min(n_keep, n_ctx - 2)
    context = ContextShift(n_ctx, n_keep).context(range(n_tokens))
    assert context == one_by_one(n_ctx, n_keep, n_tokens)
    assert len(context) < n_ctx


@pytest.mark.parametrize(("n_ctx", "n_keep"), [(8, 7), (8, 8), (8, -1)])
def test_a_context_without_room_for_new_tokens_is_a_bug(n_ctx, n_keep):
    with pytest.raises(ValueError, match="too small for keep"):
        ContextShift(n_ctx, n_keep)
