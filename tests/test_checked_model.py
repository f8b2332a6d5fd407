import random

import pytest

from shared.cache_edits import Snapshot
from shared.llama.span import Span
from shared.settings.model_options import ModelOptions
from tests.checked_model import CheckedModel, Comparison


@pytest.fixture
def checked(opened, tiny_model):
    options = [ModelOptions(ctx_size=64, parallel=n, batch_size=32, threads=1) for n in (2, 1)]
    return CheckedModel(*(opened(tiny_model("llama"), each) for each in options), random.Random(1))


def test_rows_are_compared_with_a_fresh_evaluation(checked):
    checked.decode([Span(0, 0, [1, 2, 3], 2)])
    checked.trim(0, 2)
    checked.copy(0, 1, 2)
    checked.decode([Span(1, 2, [4], 1)])
    assert len(checked.comparison.differences) == 2
    assert checked.comparison.worst < 0.01


def test_logits_that_are_no_numbers_are_wrong():
    assert Comparison([0.0, float("nan"), 0.5]).n_wrong(0.1) == 2


def test_a_state_that_is_not_that_of_its_text_is_noticed(opened, tiny_model):
    """A recurrent state that was copied is the state after all tokens of its source."""
    options = ModelOptions(ctx_size=64, parallel=2, batch_size=32, threads=1)
    model = opened(tiny_model("mamba2"), options)
    checked = CheckedModel(model, model, random.Random(1))
    checked.decode([Span(0, 0, [1, 2, 3], 0)])
    checked.copy(0, 1, 2)
    with pytest.raises(AssertionError, match="with another state"):
        checked.store(1, Snapshot("text", 1, end=2))
    with pytest.raises(AssertionError):
        checked.decode([Span(1, 2, [4], 1)])
