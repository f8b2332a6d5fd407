import pytest

from back.settings import BackComputeOptions, BackSettings
from shared.llama.model import Model
from shared.memory.plan_memory import plan_memory
from shared.model_files.builtin import builtin_draft
from tests.shared.model_files.gguf_copies import without_vocabulary


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch, tmp_path):
    monkeypatch.setattr("shared.llama.remembered.user_cache_path", lambda _: tmp_path / "remembered")


@pytest.fixture(scope="module")
def back_settings():
    return BackSettings(compute=BackComputeOptions(threads=1, ctx_size=512, parallel=1), n_branches=2)


@pytest.fixture(scope="module")
def back_model(back_settings):
    """The shipped draft model, as a back with these settings loads it."""
    model = Model(plan_memory(builtin_draft(), back_settings.model_options, back_settings.n_slots))
    yield model
    model.close()


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The shipped draft model without its vocabulary, for enlarged models that get no requests."""
    path = tmp_path_factory.mktemp("source") / "source.gguf"
    without_vocabulary(builtin_draft(), path)
    return path
