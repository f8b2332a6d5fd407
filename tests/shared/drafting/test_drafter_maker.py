"""The drafter that a back has for a lead, and when it has none."""

import logging

import pytest

from back.program import setup_for
from shared.drafting.drafter_maker import drafter_maker
from shared.errors import ModelLoadError
from shared.llama.vocabulary import Vocabulary
from shared.model_files.builtin import builtin_target
from tests.shuffled_model import write_shuffled


def test_without_another_vocabulary_the_draft_model_s_is_named(back_settings, back_model):
    setup = setup_for(back_settings, back_model)
    setup.close()
    assert setup.vocabulary == back_model.vocabulary.identify()


def test_the_same_vocabulary_needs_no_translation(back_settings, back_model, caplog):
    setup_for(back_settings, back_model, Vocabulary.load(builtin_target())).close()
    assert "translating" not in caplog.text


def test_without_a_ring_that_translates_another_vocabulary_is_refused(back_model, tmp_path):
    other = Vocabulary.load(write_shuffled(tmp_path / "shuffled.gguf"))
    with pytest.raises(ModelLoadError, match=r"have different tokenizers.* Use a draft model with the same"):
        drafter_maker(back_model, other, (), logging.getLogger("back"))
