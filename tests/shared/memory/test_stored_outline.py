import pytest

from shared.errors import ModelLoadError
from shared.memory.model_outline import MemoryProbe, ModelOutline
from shared.memory.plan_memory import plan_memory
from shared.settings.model_options import ModelOptions

OPTIONS = ModelOptions(threads=1, ctx_size=512, parallel=2, cache_ram=0)


@pytest.fixture
def loads(monkeypatch):
    """The loads of a model for measuring. The cache folder is empty at first."""
    loads, load = [], ModelOutline.load

    def counted(*arguments, **options):
        loads.append(arguments)
        return load(*arguments, **options)

    monkeypatch.setattr(ModelOutline, "load", counted)
    return loads


def facts(plan):
    values = (getattr(plan.parameters, name) for name, *_ in plan.parameters._fields_)
    numbers = [value for value in values if isinstance(value, int | float)]
    return plan.context.traits, plan.size, plan.context.n_window, plan.step_bytes, numbers


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "qwen35", "mamba"])
def test_a_second_start_plans_the_same_without_loading_the_model_to_measure_it(
    tiny_model, loads, architecture
):
    first = plan_memory(tiny_model(architecture), OPTIONS)
    assert len(loads) == 1
    assert facts(plan_memory(tiny_model(architecture), OPTIONS)) == facts(first)
    assert len(loads) == 1


def test_other_slots_are_measured_again(tiny_model, loads):
    plans = [plan_memory(tiny_model("llama"), OPTIONS, n_slots=n) for n in (1, 2, 1, 2)]
    assert len(loads) == 2
    assert facts(plans[0]) == facts(plans[2]) != facts(plans[1]) == facts(plans[3])


def test_what_could_not_be_measured_for_want_of_memory_is_not_kept(tiny_model, loads, monkeypatch):
    nothing = MemoryProbe(False, False, 0, 0, 0, 0)
    monkeypatch.setattr(ModelOutline, "probe", lambda _: nothing)
    for _ in range(2):
        plan_memory(tiny_model("llama"), OPTIONS)
    assert len(loads) == 2


def test_a_model_that_is_not_there_is_refused(tmp_path):
    with pytest.raises((ModelLoadError, OSError)):
        plan_memory(tmp_path / "no.gguf", OPTIONS)
