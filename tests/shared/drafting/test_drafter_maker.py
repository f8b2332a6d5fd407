"""Which drafter a back has for a lead, and when it has none."""

import logging

import pytest

from back.program import setup_for
from back.settings import BackComputeOptions, BackSettings
from shared.drafting.drafter_maker import drafter_maker
from shared.errors import ModelLoadError
from shared.llama.model import Model
from shared.llama.vocabulary import Vocabulary
from shared.memory.plan_memory import plan_memory
from shared.models.builtin import builtin_draft, builtin_target
from tests.shuffled_model import write_shuffled


@pytest.fixture(scope="module")
def settings():
    return BackSettings(compute=BackComputeOptions(threads=1, ctx_size=512, parallel=1), n_branches=2)


@pytest.fixture(scope="module")
def model(settings):
    model = Model(plan_memory(builtin_draft(), settings.model_options, settings.n_slots))
    yield model
    model.close()


def test_without_another_vocabulary_the_draft_model_s_is_named(settings, model):
    setup = setup_for(settings, model)
    setup.close()
    assert setup.vocabulary == model.vocabulary.identify()


def test_the_same_vocabulary_needs_no_translation(settings, model, caplog):
    setup_for(settings, model, Vocabulary.load(builtin_target())).close()
    assert "translating" not in caplog.text


def test_without_a_ring_that_translates_another_vocabulary_is_refused(model, tmp_path):
    other = Vocabulary.load(write_shuffled(tmp_path / "shuffled.gguf"))
    with pytest.raises(
        ModelLoadError, match=r"has another tokenizer than .* use a draft model with the same"
    ):
        drafter_maker(model, other, (), logging.getLogger("back"))
