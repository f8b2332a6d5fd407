import pytest

from shared.llama.model import Model
from shared.llama.span import Span
from shared.models.builtin import builtin_draft
from shared.settings.model_options import ModelOptions


@pytest.fixture
def model():
    model = Model(builtin_draft(), ModelOptions(threads=2, ctx_size=256, parallel=1))
    yield model
    model.close()


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
