import pytest

from shared.llama.model import Model
from shared.llama.span import Span
from shared.memory.plan_memory import plan_memory
from shared.model_files.builtin import builtin_target
from shared.settings.model_options import ModelOptions

OF_THREE = ModelOptions(ctx_size=512, parallel=3, batch_size=64, ubatch_size=64, threads=1)
TEXT = [300, 12, 77, 1000, 5, 9, 300, 301, 302, 12, 13]


@pytest.fixture(scope="session")
def loaded():
    model = Model(
        plan_memory(builtin_target(), ModelOptions(ctx_size=512, parallel=2, batch_size=64, threads=1))
    )
    yield model
    model.close()


@pytest.fixture
def model(loaded):
    """The model with empty slots."""
    for slot in range(loaded.n_slots):
        loaded.trim(slot, 0)
    loaded.batch_sizes = None
    return loaded


@pytest.fixture
def three_slots(request, opened, tiny_model):
    """A tiny model of the architecture `request.param`."""
    return opened(tiny_model(request.param), ModelOptions(threads=1, ctx_size=1024, parallel=3))


def read(model, slot, start, tokens):
    """The logits after `tokens` at positions from `start`, read in parts as large as the model takes."""
    for at in range(0, len(tokens), model.n_batch):
        (rows,) = model.decode([Span(slot, start + at, tokens[at : at + model.n_batch], 1)])
    return rows[0].copy()
