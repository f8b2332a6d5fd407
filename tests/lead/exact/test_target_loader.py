import shutil

import pytest

from lead.engine import target_loading
from lead.engine.load import Load
from lead.engine.target_loading import load_target
from lead.exact import target_loader
from lead.exact.exact_mode import ExactMode
from shared.errors import ModelLoadError
from shared.exact.batch_invariance import InvariantSizes
from shared.exact.invariance_probe import SizeReport
from shared.llama import remembered
from shared.llama.model import Model
from shared.llama.start_key import state_of_files
from shared.model_files.builtin import builtin_target
from shared.settings.model_options import ModelOptions

FOUND = ExactMode(batch_sizes=InvariantSizes((2, 4), (8, 16), (64,), joins=False), cost=1.25)


NOISY = FOUND.model_copy(update={"cost": None, "reason": target_loader._NOISY})


def load(exact, path=None, **more):
    options = ModelOptions(ctx_size=1024, parallel=2, threads=1, exact=exact)
    model, exactness = load_target(Load(model=path or builtin_target(), options=options, depth=0, **more))
    model.close()
    return model, exactness


@pytest.fixture(autouse=True)
def _brief(monkeypatch, tmp_path):
    monkeypatch.setattr(SizeReport, "price", lambda *_: 1.25)  # of this machine, which may be busy
    monkeypatch.setattr(target_loader, "_SPARE_SECONDS", 0.1)
    monkeypatch.setattr(remembered, "user_cache_path", lambda _name: tmp_path)


def test_usually_slots_share_their_cells_and_sizes_are_free():
    model, exactness = load("off")
    assert (model.plan.context.kv_unified, model.batch_sizes, exactness.is_on) == (True, None, False)
    assert exactness.cost == 1.25


@pytest.mark.parametrize("exact", ["off", "auto"])
def test_what_a_busy_machine_did_not_let_it_measure_is_measured_at_the_next_start(monkeypatch, exact):
    with monkeypatch.context() as busy:
        busy.setattr(SizeReport, "price", lambda *_: None)
        _, exactness = load(exact)
    assert (exactness.is_on, exactness.cost) == (False, None)
    assert "not measured: times varied too much" in exactness.guarantee
    assert load(exact)[1].cost == 1.25


def test_sizes_found_on_a_busy_machine_are_kept_without_a_cost(measured, monkeypatch):
    measured(NOISY)
    _, exactness = load("on")
    monkeypatch.delattr(target_loader, "enable_exact_mode")
    assert load("on")[1] == exactness
    assert "its cost was not measured: times varied too much" in exactness.guarantee


def test_what_exact_mode_would_cost_is_measured_at_the_first_start_only(monkeypatch):
    _, exactness = load("off")
    monkeypatch.delattr(target_loader, "estimate_sizes")
    assert load("off")[1] == exactness


def test_without_calibration_its_cost_is_not_measured(monkeypatch):
    monkeypatch.delattr(target_loader, "estimate_sizes")
    assert load("off", calibrate=False)[1].cost is None


def test_in_exact_mode_slots_have_cells_of_their_own_and_the_next_start_measures_nothing(monkeypatch):
    model, exactness = load("on")
    assert not model.plan.context.kv_unified
    assert model.batch_sizes == ExactMode.of(exactness).batch_sizes is not None
    monkeypatch.delattr(target_loader, "measure_sizes")
    again, found = load("on")
    assert (again.batch_sizes, found) == (model.batch_sizes, exactness)


@pytest.fixture
def measured(monkeypatch):
    """A function that sets the result of measuring."""
    return lambda found: monkeypatch.setattr(target_loader, "enable_exact_mode", lambda _model: found)


@pytest.fixture
def found(measured):
    """The result of an earlier process, which a later process gets."""
    measured(FOUND)
    return load("on")[1]


@pytest.fixture
def forget(tmp_path):
    """A function that empties the cache folder."""
    return lambda: shutil.rmtree(tmp_path / "exactness")


def test_a_later_process_takes_over_what_was_found(found, forget, measured):
    forget()
    measured(None)
    model, exactness = load("on", exactness=found)
    assert (model.batch_sizes, exactness) == (FOUND.batch_sizes, found)


def test_unless_the_file_is_another_by_then(found, forget, measured, tmp_path):
    """The sizes that agree in bits were measured with other weights."""
    forget()
    measured(ExactMode(batch_sizes=FOUND.batch_sizes, cost=1.5))
    assert load("on", shutil.copy(builtin_target(), tmp_path / "new.gguf"), exactness=found)[1].cost == 1.5


@pytest.mark.parametrize(("cost", "is_on"), [(1.04, True), (1.06, False)])
def test_auto_is_on_where_it_costs_little(measured, cost, is_on):
    measured(FOUND.model_copy(update={"cost": cost}))
    model, exactness = load("auto")
    assert (exactness.is_on, model.plan.context.kv_unified) == (is_on, not is_on)
    assert exactness.cost == cost


def test_a_recurrent_model_has_no_exact_mode(tiny_model):
    with pytest.raises(ModelLoadError, match="recurrent states depend on the batches"):
        load("on", tiny_model("mamba2"))


def test_a_context_that_is_too_small_has_none(monkeypatch):
    monkeypatch.setattr(target_loader, "NEEDED_CONTEXT", 4096)
    with pytest.raises(ModelLoadError, match="needs a context of at least 4096 tokens"):
        load("on")


def test_sizes_that_a_rehearsal_refuses_are_not_used(monkeypatch):
    monkeypatch.setattr(target_loader, "rehearse", lambda _model, _batch_sizes: None)
    with pytest.raises(ModelLoadError, match="the logits of a test text changed"):
        load("on")


def test_a_later_process_stays_on_the_cpu(found, monkeypatch):
    """A GPU may have room for layers by then, but the lead has promised the CPU's bits."""
    asked = []

    def load_model(plan, images):
        asked.append(plan.options.n_gpu_layers)
        return Model(plan, images)

    monkeypatch.setattr(target_loading, "Model", load_model)
    assert load("on", exactness=found)[1] == found
    assert asked == [0]


def test_what_an_earlier_start_has_measured_is_measured_again_once_layers_are_on_a_gpu(measured, monkeypatch):
    monkeypatch.setattr(target_loader, "_recalled", lambda *_: FOUND)
    monkeypatch.setattr(target_loader, "_why_never", lambda _: "with layers on a GPU")
    measured(ExactMode(reason="measured again"))
    assert "measured again" in load("auto")[1].guarantee


# What an earlier start has measured serves a start like it, and no other


@pytest.fixture
def start(tmp_path):
    path = tmp_path / "target.gguf"
    shutil.copy(builtin_target(), path)
    return Load(model=path, options=ModelOptions(threads=1, exact="on"), depth=4)


def stored(load, *, with_heads=False):
    return target_loader._stored(load, state_of_files(load.model, load.options), with_heads=with_heads)


def recalled(load, **more):
    return stored(load, **more).recall()


def test_a_start_like_it_finds_all_of_it(start):
    assert recalled(start) is None
    stored(start).keep(FOUND)
    assert recalled(start) == FOUND
    assert recalled(start.model_copy(update={"depth": 1, "ngram": False})) == FOUND
    richer = start.options.model_copy(update={"cache_ram": 5})
    assert recalled(start.model_copy(update={"options": richer})) == FOUND


@pytest.mark.parametrize("option", [{"threads": 2}, {"exact": "auto"}, {"repack": False}, {"ctx_size": 999}])
def test_other_options_are_measured_again(start, option):
    stored(start).keep(FOUND)
    assert recalled(start.model_copy(update={"options": start.options.model_copy(update=option)})) is None
    assert recalled(start, with_heads=True) is None
