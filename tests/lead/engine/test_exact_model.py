"""Which model is loaded, and what is promised of it."""

import pytest

from lead.engine import exact_model, exactness_cache
from lead.engine.commands import Load
from lead.engine.exact_model import limits_of, load_target
from shared.errors import ModelLoadError
from shared.llama.batch_invariance import InvariantWidths
from shared.llama.invariance_probe import WidthReport
from shared.llama.model import Model
from shared.models.builtin import builtin_target
from shared.settings.model_options import ModelOptions


def load(exact, path=None, **more):
    options = ModelOptions(ctx_size=1024, parallel=2, threads=1, exact=exact)
    model, exactness = load_target(Load(model=path or builtin_target(), options=options, depth=0, **more))
    model.close()
    return model, exactness


@pytest.fixture(autouse=True)
def _brief(monkeypatch, tmp_path):
    monkeypatch.setattr(exact_model, "_SPARE_SECONDS", 0.1)
    monkeypatch.setattr(exactness_cache, "user_cache_path", lambda _name: tmp_path)


def test_usually_slots_share_their_cells_and_widths_are_free():
    model, exactness = load("off")
    assert (model.kv_unified, model.widths, exactness.is_on) == (True, None, False)
    assert exactness.cost > 0


def test_in_exact_mode_slots_have_cells_of_their_own():
    model, exactness = load("on")
    assert not model.kv_unified
    assert model.widths == exactness.widths is not None


def test_a_later_process_takes_over_what_was_found():
    _, exactness = load("on")
    model, again = load("on", exactness=exactness)
    assert (model.widths, again) == (exactness.widths, exactness)


def test_the_next_start_measures_nothing(monkeypatch):
    _, exactness = load("on")
    monkeypatch.delattr(exact_model, "measure_widths")
    model, again = load("on")
    assert (model.widths, again) == (exactness.widths, exactness)


@pytest.mark.parametrize(("cost", "is_on"), [(1.04, True), (1.06, False)])
def test_auto_is_on_where_it_costs_little(monkeypatch, cost, is_on):
    monkeypatch.setattr(WidthReport, "price", lambda _report, _policy: cost)
    model, exactness = load("auto")
    assert (exactness.is_on, model.kv_unified) == (is_on, not is_on)
    assert exactness.cost == cost


def test_a_recurrent_model_has_no_exact_mode(tiny_model):
    with pytest.raises(ModelLoadError, match="a recurrent state depends on how a text was divided"):
        load("on", tiny_model("mamba2"))


def test_a_context_that_is_too_small_has_none(monkeypatch):
    monkeypatch.setattr(exact_model, "NEEDED_CONTEXT", 4096)
    with pytest.raises(ModelLoadError, match="needs a context of at least 4096 tokens"):
        load("on")


def test_widths_that_a_rehearsal_refuses_are_not_used(monkeypatch):
    wrong = InvariantWidths((1, 2, 3, 4), (1, 2, 3, 4, 8))
    monkeypatch.setattr(WidthReport, "policy", lambda _report: wrong)
    with pytest.raises(ModelLoadError, match="a rehearsed text had other bits"):
        load("on")


@pytest.mark.parametrize("kv_unified", [True, False])
def test_steps_are_planned_by_the_rules_of_the_model(tiny_model, kv_unified):
    """More cells than a sequence may fill: nothing is padded beyond its context."""
    options = ModelOptions(ctx_size=4096, parallel=2, threads=1, kv_unified=kv_unified)
    model = Model(tiny_model("qwen35"), options)
    assert model.n_ctx > model.vocabulary.info.n_ctx_train
    assert limits_of(model).layout_rules == model.layout_rules
    model.close()
