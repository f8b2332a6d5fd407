import numpy as np
import pytest

from shared.llama.span import Span
from tests.shared.llama.conftest import TEXT, loaded, model, three_slots  # noqa: F401 - fixtures


def rows(states, slot, n):
    """The hidden states of the first tokens in a slot."""
    return np.array([states.state(slot, position) for position in range(n)])


def rows_in_company(target, states):
    """Check that the hidden states of a text are the same alone and beside other texts; return them."""
    target.decode([Span(0, 0, TEXT, 1)])
    alone = rows(states, 0, len(TEXT))
    target.trim(0, 0)
    target.decode([Span(1, 0, TEXT[:4], 0), Span(0, 0, TEXT[:7], 1), Span(2, 0, TEXT[:2], 1)])
    target.decode([Span(0, 7, TEXT[7:], 1), Span(2, 2, TEXT[2:3], 1)])
    assert rows(states, 0, len(TEXT)) == pytest.approx(alone, abs=1e-3)
    assert rows(states, 1, 4) == pytest.approx(alone[:4], abs=1e-3)
    assert rows(states, 2, 3) == pytest.approx(alone[:3], abs=1e-3)
    return alone
