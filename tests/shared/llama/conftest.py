import pytest

from shared.llama.model import Model, ModelOptions
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_target


@pytest.fixture(scope="session")
def vocabulary():
    return Vocabulary.load(builtin_target())


@pytest.fixture(scope="session")
def loaded():
    model = Model(ModelOptions(builtin_target(), n_ctx=512, n_slots=2, n_batch=64, n_threads=1))
    yield model
    model.close()


@pytest.fixture
def model(loaded):
    """The model with empty slots."""
    for slot in range(loaded.n_slots):
        loaded.trim(slot, 0)
    loaded.pads_single_tokens = False
    return loaded
