import pytest

from shared.llama.vocabulary import Vocabulary
from shared.model_files.builtin import builtin_draft, builtin_target
from shared.settings.model_options import ModelOptions
from shared.translation.projection import Projection
from shared.translation.retention import N_CONTEXT, measure_retention, n_followed
from shared.translation.translating_model import TranslatingModel
from shared.translation.vocabulary_pair import vocabulary_pair
from tests.shared.translation.knowing_model import KnowingModel
from tests.shared.translation.toys import generator, longest_first, random_text, random_vocabulary
from tests.shuffled_model import write_shuffled


def test_a_model_that_knows_the_text_is_followed_to_its_end():
    rng = generator(1)
    text = random_text(rng, 60)
    vocabulary = random_vocabulary(rng, 20)
    tokens = vocabulary.encode(text)
    model = TranslatingModel(KnowingModel(vocabulary, text), Projection(vocabulary, vocabulary))
    assert n_followed(model, tokens, 4) == len(tokens) - 4


def test_a_model_that_expects_another_text_is_not():
    letters = longest_first([bytes([byte]) for byte in range(256)])
    model = TranslatingModel(KnowingModel(letters, b"a" * 40), Projection(letters, letters))
    assert n_followed(model, letters.encode(b"a" + b"b" * 20), 1) == 0


@pytest.fixture
def model(opened, tmp_path):
    path = write_shuffled(tmp_path / "shuffled.gguf")
    return opened(path, ModelOptions(ctx_size=N_CONTEXT, parallel=1, threads=1))


def test_between_vocabularies_of_the_same_tokens_little_is_lost(model):
    """Drafts are lost only where the model writes other tokens than its tokenizer."""
    projection = vocabulary_pair(model.vocabulary, Vocabulary.load(builtin_target()))
    kept = measure_retention(model, projection, [])
    assert kept.share > 0.95
    assert kept.n_tokens > 16
    assert measure_retention(model, projection, []) == kept  # the slot was left empty


def test_a_model_that_has_nothing_to_say_cannot_be_measured(model, monkeypatch):
    monkeypatch.setattr("shared.translation.retention._N_DRAFT_TOKENS", 3)
    projection = vocabulary_pair(model.vocabulary, Vocabulary.load(builtin_draft()))
    assert measure_retention(model, projection, []) is None
