import threading

import pytest

from shared.errors import DecodeAbortedError
from shared.llama.span import Span
from shared.model_files.builtin import builtin_draft
from shared.settings.model_options import ModelOptions


@pytest.fixture
def model(opened):
    return opened(builtin_draft(), ModelOptions(threads=2, ctx_size=256, parallel=1))


def test_a_step_shows_that_it_proceeds(model):
    progress = model.watch_steps()
    progress.has_proceeded()
    assert not progress.has_proceeded()
    model.decode([Span(0, 0, [1, 2, 3], 1)])
    assert progress.has_proceeded()
    assert not progress.has_proceeded()


def test_watching_changes_no_logit(model):
    (before,) = model.decode([Span(0, 0, [1, 2, 3], 1)])
    before = before.copy()
    model.trim(0, 0)
    progress = model.watch_steps()
    (after,) = model.decode([Span(0, 0, [1, 2, 3], 1)])
    assert progress.has_proceeded()
    assert (before == after).all()


def test_an_interrupted_decode_is_aborted_and_the_next_one_is_right(model, caplog):
    (before,) = model.decode([Span(0, 0, [1, 2, 3], 1)])
    before = before.copy()
    model.trim(0, 0)
    interrupt = model.interrupt()
    interrupt.set()
    with pytest.raises(DecodeAbortedError):
        model.decode([Span(0, 0, [1, 2, 3], 1)])
    assert all(record.levelname == "DEBUG" for record in caplog.records)
    interrupt.clear()
    model.trim(0, 0)
    (after,) = model.decode([Span(0, 0, [1, 2, 3], 1)])
    assert (before == after).all()


def decode_again_and_again(model):
    while True:
        model.decode([Span(0, 0, [1] * 200, 1)])
        model.trim(0, 0)


def test_a_decode_is_interrupted_by_another_thread(model):
    interrupt = model.interrupt()
    threading.Timer(0.01, interrupt.set).start()
    with pytest.raises(DecodeAbortedError):
        decode_again_and_again(model)


def test_a_recurrent_model_cannot_be_interrupted(opened, tiny_model):
    options = ModelOptions(threads=1, ctx_size=256, parallel=1)
    assert opened(tiny_model("mamba2"), options).interrupt() is None
