"""Plans with a GPU, which is a fake: llama.cpp computes nothing on it."""

from types import SimpleNamespace

import psutil
import pytest

from shared.errors import ModelLoadError
from shared.llama import devices
from shared.llama.model import Model
from shared.llama.placement import Device
from shared.memory.plan_memory import plan_memory
from shared.settings.model_options import ModelOptions

OPTIONS = ModelOptions(threads=1, ctx_size=512, parallel=2)


@pytest.fixture
def gpu(monkeypatch):
    """A GPU with this many bytes free, beside a host with a GB."""

    def have(n_free, *, is_shared=False):
        monkeypatch.setattr(devices, "chosen", lambda _: [])
        device = Device("GPU0", "a GPU", free=n_free, total=n_free, is_shared=is_shared)
        monkeypatch.setattr(devices, "describe", lambda _: [device])
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=10**9))

    return have


def test_what_is_in_vram_takes_no_host_memory(gpu, tiny_model):
    path = tiny_model("llama")
    gpu(10**9)
    on_gpu, on_cpu = (plan_memory(path, OPTIONS.model_copy(update={"n_gpu_layers": n})) for n in (-1, 0))
    assert on_gpu.options.n_gpu_layers == 5
    assert on_cpu.options.n_gpu_layers == 0
    taken = on_gpu.placement.used("GPU0")
    assert taken > on_gpu.size.full_attention > 0
    more = on_gpu.prompt_cache.n_bytes - on_cpu.prompt_cache.n_bytes
    # Where all is on the CPU the fake GPU computes nothing there either.
    assert abs(more - (taken + on_cpu.size.computing - on_gpu.size.computing) / 4) <= 1


def batches_of(path, **options):
    plan = plan_memory(path, OPTIONS.model_copy(update=options))
    return plan.parameters.n_batch, plan.parameters.n_ubatch, plan.size


def test_larger_batches_take_no_more_memory_as_they_are_computed_in_parts(gpu, tiny_model):
    gpu(10**9)
    path = tiny_model("llama")
    by_default, as_before = batches_of(path), batches_of(path, batch_size=512)
    assert by_default[:2] == (2048, 512)
    assert as_before[:2] == (512, 512)
    assert by_default[2] == as_before[2]


def test_a_memory_that_needs_a_batch_in_one_part_keeps_it(gpu, tiny_model):
    gpu(10**9)
    assert batches_of(tiny_model("gemma3"))[:2] == batches_of(tiny_model("qwen35"))[:2] == (512, 512)


def test_what_others_take_is_not_free(gpu, tiny_model):
    gpu(10**9)
    plan = plan_memory(tiny_model("llama"), OPTIONS, taken={"GPU0": 10**9, "CPU": 6 * 10**8})
    assert plan.options.n_gpu_layers == 0
    assert plan.prompt_cache.n_bytes < 10**8


@pytest.mark.parametrize(("is_shared", "n_taken"), [(False, 0), (True, 2 * 10**8)])
def test_what_others_take_of_a_gpu_is_the_hosts_where_they_share_memory(gpu, tiny_model, is_shared, n_taken):
    gpu(10**9, is_shared=is_shared)
    alone, beside = (
        plan_memory(tiny_model("llama"), OPTIONS, taken={"GPU0": n}).prompt_cache.n_bytes
        for n in (0, 2 * 10**8)
    )
    assert abs(alone - beside - n_taken // 4) <= 1


def test_states_are_kept_where_the_weights_leave_room(gpu, tiny_model):
    path = tiny_model("qwen35")
    gpu(10**9)
    assert plan_memory(path, OPTIONS).context.traits.n_rollback == 8
    gpu(path.stat().st_size)
    assert plan_memory(path, OPTIONS).context.traits.n_rollback < 8


def test_layers_that_cannot_be_there_are_a_problem_before_they_are_loaded(gpu, tiny_model):
    gpu(100_000)
    path, options = tiny_model("llama"), OPTIONS.model_copy(update={"n_gpu_layers": 99})
    assert "GPU0 needs" in plan_memory(path, options).placement.problem
    with pytest.raises(ModelLoadError, match="GPU0 needs"):
        Model(plan_memory(path, options))


def test_heads_that_are_not_loaded_take_nothing(tiny_with_heads):
    path = tiny_with_heads("qwen35")
    without, loaded = (plan_memory(path, OPTIONS, with_heads=heads).placement for heads in (False, True))
    assert loaded.host_weights > without.host_weights
