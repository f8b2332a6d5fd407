"""A window that was overwritten is noticed before anything is computed from it."""

import numpy as np
import pytest

from bench.tiny_models import WINDOW
from shared.errors import WindowLostError
from shared.llama.model import Model
from shared.llama.span import Span
from shared.settings.model_options import ModelOptions

TEXT = [(7 * i) % 4000 for i in range(6 * WINDOW)]
OTHER = [(11 * i) % 4000 for i in range(6 * WINDOW)]


@pytest.fixture(params=["gemma3", "gpt-oss"])
def model(request, tiny_model):
    options = ModelOptions(threads=1, ctx_size=1024, parallel=2, batch_size=32, ubatch_size=32)
    model = Model(tiny_model(request.param), options)
    yield model
    model.close()


def read(model, slot, start, tokens):
    for at in range(0, len(tokens), model.n_batch):
        part = tokens[at : at + model.n_batch]
        (rows,) = model.decode([Span(slot, start + at, part, 1)])
    return rows[0].copy()


def overwrite(model):
    """Go back to the middle of a text, further than the last decode, while another slot is busy."""
    expected = read(model, 0, 0, TEXT[: 2 * WINDOW])
    read(model, 0, 2 * WINDOW, TEXT[2 * WINDOW :])
    read(model, 1, 0, OTHER)
    model.trim(0, 2 * WINDOW - 1)
    return expected


def test_a_text_that_was_cut_back_too_far_is_not_decoded(model):
    overwrite(model)
    with pytest.raises(WindowLostError, match=r"slots \[0\] were overwritten") as raised:
        model.decode([Span(1, len(OTHER), [1], 1), Span(0, 2 * WINDOW - 1, [1], 1)])
    assert raised.value.slots == [0]


def test_the_other_slots_go_on(model):
    overwrite(model)
    assert len(model.decode([Span(1, len(OTHER), [1], 1)])) == 1


def test_once_it_is_read_again_it_is_right(model):
    expected = overwrite(model)
    model.trim(0, 0)
    assert np.abs(read(model, 0, 0, TEXT[: 2 * WINDOW]) - expected).max() < 0.01


def test_a_draft_of_the_last_decode_is_taken_back_without_a_complaint(model):
    read(model, 0, 0, TEXT)
    expected = read(model, 0, len(TEXT), OTHER[:3])
    model.trim(0, len(TEXT))
    assert np.abs(read(model, 0, len(TEXT), OTHER[:3]) - expected).max() < 0.01


def test_a_stored_window_makes_it_whole_again(model):
    read(model, 0, 0, TEXT[: 2 * WINDOW])
    model.store(0, 7)
    expected = read(model, 0, 2 * WINDOW, OTHER[:1])
    read(model, 0, 2 * WINDOW + 1, TEXT[2 * WINDOW :])
    read(model, 1, 0, OTHER)
    model.load(0, 7)
    assert np.abs(read(model, 0, 2 * WINDOW, OTHER[:1]) - expected).max() < 0.01


def test_a_copy_of_a_beginning_is_no_use_without_its_window(model):
    read(model, 0, 0, TEXT)
    read(model, 1, 0, OTHER)
    model.trim(1, 0)
    model.copy(0, 1, WINDOW)
    with pytest.raises(WindowLostError):
        model.decode([Span(1, WINDOW, [1], 1)])
