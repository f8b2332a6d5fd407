import pytest

from back.settings import BackComputeOptions, BackSettings
from shared.llama.model import Model
from shared.memory.plan_memory import plan_memory
from shared.models.builtin import builtin_draft


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
