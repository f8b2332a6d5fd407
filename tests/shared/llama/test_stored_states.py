"""States in host memory bring back what was there, in the same slot and in another."""

import numpy as np
import pytest

from shared.llama.model import Model
from shared.llama.span import Span
from shared.settings.model_options import ModelOptions

TEXT = [(7 * i) % 4000 for i in range(150)]
OTHER = [(11 * i) % 4000 for i in range(100)]


@pytest.fixture(params=["qwen35", "jamba", "gemma3", "lfm2"])
def model(request, tiny_model):
    model = Model(tiny_model(request.param), ModelOptions(threads=1, ctx_size=1024, parallel=3))
    yield model
    model.close()


def read(model, slot, start, tokens):
    return model.decode([Span(slot, start, tokens, 1)])[0][0].copy()


def test_a_slot_goes_back_to_a_state_long_ago(model):
    read(model, 0, 0, TEXT[:50])
    model.store(0, 7)
    expected = read(model, 0, 50, TEXT[50:60])
    read(model, 0, 60, TEXT[60:])
    read(model, 1, 0, OTHER)
    model.load(0, 7)
    assert np.abs(read(model, 0, 50, TEXT[50:60]) - expected).max() < 0.01


def test_another_slot_goes_on_from_a_state(model):
    read(model, 0, 0, TEXT[:50])
    model.store(0, 7)
    expected = read(model, 0, 50, TEXT[50:])
    model.copy(0, 1, 50)
    model.load(1, 7)
    assert np.abs(read(model, 1, 50, TEXT[50:]) - expected).max() < 0.01


def test_a_state_that_was_forgotten_cannot_be_loaded(model):
    read(model, 0, 0, TEXT[:50])
    model.store(0, 7)
    model.forget(7)
    with pytest.raises(KeyError):
        model.load(0, 7)
