"""Loading of the target, and the limits that a scheduler gets from it."""

from dataclasses import fields

import pytest

from lead.engine import target_loading
from lead.engine.load import Load
from lead.engine.target_loading import limits_of, load_target, options_of_target
from shared.errors import ModelLoadError
from shared.llama.model import Model
from shared.memory.plan_memory import plan_memory
from shared.model_files.builtin import builtin_target
from shared.settings.model_options import ModelOptions

OPTIONS = ModelOptions(ctx_size=512, parallel=2, threads=1)
EXACT = OPTIONS.model_copy(update={"exact": "on"})


@pytest.mark.parametrize("kv_unified", [True, False])
def test_steps_are_planned_by_the_rules_of_the_model(tiny_model, kv_unified):
    """There are more cells than a sequence may fill: nothing is padded beyond its context."""
    options = ModelOptions(ctx_size=4096, parallel=2, threads=1, kv_unified=kv_unified)
    model = Model(plan_memory(tiny_model("qwen35"), options))
    assert model.n_ctx > model.vocabulary.info.n_ctx_train
    limits, rules = limits_of(model), model.layout_rules
    assert all(getattr(limits, field.name) == getattr(rules, field.name) for field in fields(rules))
    model.close()


@pytest.fixture
def _alone(monkeypatch):
    """Let no ring load the target."""
    monkeypatch.setattr(target_loading, "RINGS", ())


@pytest.mark.usefixtures("_alone")
def test_without_exact_mode_the_target_is_loaded_as_it_is():
    model, exactness = load_target(Load(model=builtin_target(), options=OPTIONS))
    model.close()
    assert (model.batch_sizes, exactness.is_on) == (None, False)
    assert options_of_target(OPTIONS) == (OPTIONS, 0)


@pytest.mark.usefixtures("_alone")
def test_without_exact_mode_it_is_refused_to_who_asks_for_it():
    with pytest.raises(ModelLoadError, match="--exact on: "):
        load_target(Load(model=builtin_target(), options=EXACT))
    with pytest.raises(ModelLoadError, match="--exact on: "):
        options_of_target(EXACT)
