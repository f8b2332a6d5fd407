"""A recurrent state is saved and restored without a difference, beside other busy slots."""

import numpy as np
import pytest

from shared.llama.model import Model
from shared.llama.span import Span
from shared.settings.model_options import ModelOptions

TEXT = [(7 * i) % 4000 for i in range(60)]
OTHER = [(11 * i) % 4000 for i in range(60)]


@pytest.fixture(params=["jamba", "mamba2", "qwen3next"])
def model(request, tiny_model):
    model = Model(tiny_model(request.param), ModelOptions(threads=1, ctx_size=512, parallel=2))
    yield model
    model.close()


def read(model, slot, start, tokens):
    return model.decode([Span(slot, start, tokens, 1)])[0][0].copy()


def test_a_rejected_draft_leaves_no_trace(model):
    read(model, 0, 0, TEXT[:50])
    model.save(0, 0)
    expected = read(model, 0, 50, TEXT[50:55])
    model.restore(0, 0, 0)
    read(model, 0, 50, OTHER[:3])
    read(model, 1, 0, OTHER)
    model.restore(0, 0, 0)
    assert np.abs(read(model, 0, 50, TEXT[50:55]) - expected).max() < 1e-4


def test_a_state_can_be_saved_again_further_on(model):
    read(model, 0, 0, TEXT[:20])
    model.save(0, 0)
    read(model, 0, 20, TEXT[20:50])
    model.save(0, 0)
    expected = read(model, 0, 50, TEXT[50:])
    model.restore(0, 0, 0)
    assert np.abs(read(model, 0, 50, TEXT[50:]) - expected).max() < 1e-4


def test_another_slot_goes_on_from_a_saved_state(model):
    read(model, 0, 0, TEXT[:50])
    model.save(0, 0)
    expected = read(model, 0, 50, TEXT[50:])
    model.restore(0, 0, 1)
    assert np.abs(read(model, 1, 50, TEXT[50:]) - expected).max() < 1e-4


def test_a_slot_that_was_emptied_has_no_saved_state(model):
    read(model, 0, 0, TEXT)
    model.save(0, 0)
    model.trim(0, 0)
    with pytest.raises(AssertionError, match="no state"):
        model.restore(0, 0, 0)
