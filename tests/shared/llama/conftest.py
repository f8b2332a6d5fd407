import pytest

from shared.llama.model import Model
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_target
from shared.settings.model_options import ModelOptions


@pytest.fixture(scope="session")
def vocabulary():
    return Vocabulary.load(builtin_target())


@pytest.fixture(scope="session")
def loaded():
    model = Model(builtin_target(), ModelOptions(ctx_size=512, parallel=2, batch_size=64, threads=1))
    yield model
    model.close()


@pytest.fixture
def model(loaded):
    """The model with empty slots."""
    for slot in range(loaded.n_slots):
        loaded.trim(slot, 0)
    loaded.pads_single_tokens = False
    return loaded
