"""How memories are used, and what is stated about them, against tiny models of each kind."""

from dataclasses import replace
from types import SimpleNamespace

import llama_cpp
import psutil
import pytest

from bench.tiny_models import WINDOW
from shared.errors import ModelLoadError
from shared.llama import devices, memory_plan
from shared.llama.gguf_metadata import tensor_sizes
from shared.llama.memory_plan import (
    ContextNeeds,
    choose_traits,
    describe_checkpoints,
    n_prompt_checkpoints,
    plan_memory,
    size_prompt_cache,
)
from shared.llama.memory_probe import MemoryProbe
from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.llama.model import Model
from shared.llama.placement import Device
from shared.models.builtin import builtin_target
from shared.prompt_cache import PromptCacheSize
from shared.settings.model_options import ModelOptions

OPTIONS = ModelOptions(threads=1, ctx_size=512, parallel=2)
RECURRENT = MemoryProbe(
    True, can_roll_back=True, n_window=0, full_token_bytes=10, window_token_bytes=0, state_bytes=1000
)


def test_a_model_that_llama_cpp_reads_wrongly_in_several_slots_is_refused(tiny_model):
    with pytest.raises(ModelLoadError, match="plamo2 models"):
        plan_memory(tiny_model("plamo2"), OPTIONS)
    plan_memory(tiny_model("plamo2"), OPTIONS, n_slots=1)


def traits_of(path, **options):
    return plan_memory(path, OPTIONS.model_copy(update=options)).context.traits


@pytest.mark.parametrize(
    ("architecture", "n_rollback", "n_step_checkpoints"),
    [
        ("llama", None, False),
        ("qwen35", 8, False),
        ("lfm2", 8, False),
        ("jamba", 0, True),
        ("mamba2", 0, True),
    ],
)
def test_each_kind_of_memory_is_told_apart(tiny_model, architecture, n_rollback, n_step_checkpoints):
    traits = traits_of(tiny_model(architecture))
    assert (traits.n_rollback, traits.n_step_checkpoints) == (n_rollback, n_step_checkpoints)
    assert traits.can_speculate


def test_a_sliding_window_is_cut_back_within_the_last_decode(tiny_model):
    assert traits_of(tiny_model("gemma3")).n_rollback > 32


def test_with_all_tokens_a_sliding_window_is_like_plain_attention(tiny_model):
    assert traits_of(tiny_model("gemma3"), swa_full=True) == PLAIN


def test_recurrent_states_beside_windows_have_cells_of_their_own(tiny_model):
    assert not plan_memory(tiny_model("lfm2"), OPTIONS).context.kv_unified
    assert plan_memory(tiny_model("qwen35"), OPTIONS).context.kv_unified


def test_checkpoints_need_one_pool(tiny_model):
    assert not traits_of(tiny_model("jamba"), kv_unified=False).can_speculate


@pytest.mark.parametrize(("free_bytes", "n_rollback"), [(64_000, 8), (63_999, 6), (8_000, 1), (7_999, 0)])
def test_rollback_takes_at_most_a_quarter_of_the_free_memory(free_bytes, n_rollback):
    traits = choose_traits(RECURRENT, OPTIONS, n_slots=2, free_bytes=free_bytes)
    assert traits.n_rollback == n_rollback
    assert traits.n_step_checkpoints == (n_rollback == 0)


@pytest.mark.parametrize(
    ("wanted", "n_slots", "free_bytes", "n"),
    [(18, 4, 1 << 30, 18), (18, 16, 1 << 30, 15), (18, 4, 160_000, 10), (18, 4, 0, 1)],
)
def test_a_drafter_keeps_as_many_states_as_sequences_and_memory_allow(wanted, n_slots, free_bytes, n):
    traits = choose_traits(RECURRENT, OPTIONS, n_slots, free_bytes, wanted)
    assert (traits.n_rollback, traits.n_step_checkpoints) == (0, n)


def test_states_take_a_quarter_of_what_the_weights_leave(tiny_model, monkeypatch):
    path = tiny_model("qwen35")
    assert plan_memory(path, OPTIONS).size.n_states == 2 * 9
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=path.stat().st_size))
    assert plan_memory(path, OPTIONS).size.n_states == 2 * 2  # a checkpoint sequence each


def test_the_context_is_that_of_training_for_each_slot_unless_it_is_chosen(tiny_model):
    plan = plan_memory(tiny_model("llama"), OPTIONS.model_copy(update={"ctx_size": 0}))
    assert plan.parameters.n_ctx == 2 * 512


def test_guarded_windows_need_a_second_sequence_for_each_slot(tiny_model):
    plan = plan_memory(tiny_model("gemma3"), OPTIONS.model_copy(update={"swa_full": True}))
    n_with_spare = 2 * 2 + 1
    assert (plan.context.is_guarded, plan.context.n_window, plan.parameters.n_seq_max) == (
        True,
        WINDOW,
        n_with_spare,
    )
    assert not plan_memory(tiny_model("gemma3"), OPTIONS).context.is_guarded


WINDOWS = MemoryTraits(n_rollback=64, checkpoint_bytes=1 << 20)


@pytest.mark.parametrize(
    ("options", "n"),
    [({}, 8), ({"ctx_checkpoints": 3}, 3), ({"checkpoint_memory": 10}, 5), ({"parallel": 64}, 8)],
)
def test_checkpoints_are_bounded_by_number_and_by_memory(options, n):
    assert n_prompt_checkpoints(WINDOWS, OPTIONS.model_copy(update=options)) == n


def test_no_checkpoints_are_needed_where_memory_can_be_trimmed():
    assert n_prompt_checkpoints(PLAIN, OPTIONS) == 0
    assert describe_checkpoints(PLAIN, OPTIONS) == ""


@pytest.mark.parametrize(
    ("cache_ram", "n_left", "n_bytes"),
    [(1, 1 << 40, 1 << 20), (-1, 4000, 1000), (8192, 4000, 1000), (0, 1 << 40, 0), (8192, -5000, 0)],
)
def test_stored_texts_are_bounded_by_an_option_and_a_quarter_of_the_free_memory(cache_ram, n_left, n_bytes):
    options = OPTIONS.model_copy(update={"cache_ram": cache_ram})
    context = ContextNeeds(64, 2, WINDOWS, kv_unified=True, n_window=0)
    assert size_prompt_cache(options, RECURRENT, n_left, context) == PromptCacheSize(n_bytes, 10, 1000)


@pytest.mark.parametrize(
    ("architecture", "options", "stores"),
    [
        ("llama", {}, True),
        ("gemma3", {}, True),
        ("gemma3", {"swa_full": True}, True),
        ("gemma3", {"swa_full": True, "kv_unified": False}, False),
        ("qwen35", {}, True),
    ],
)
def test_texts_are_stored_unless_cells_outside_of_windows_may_be_needed(
    tiny_model, architecture, options, stores
):
    plan = plan_memory(tiny_model(architecture), OPTIONS.model_copy(update=options))
    assert (plan.prompt_cache.n_bytes > 0) == stores


@pytest.mark.parametrize(("n_fitting", "n_part"), [(1000, 512), (512, 512), (511, 256), (100, 64)])
def test_no_part_is_longer_than_a_window_nor_crosses_its_multiples(n_fitting, n_part):
    """llama.cpp stores only the last window of a sequence."""
    n_bytes = memory_plan._PART_BYTES // n_fitting
    probe = replace(RECURRENT, n_window=512, full_token_bytes=n_bytes - 9, window_token_bytes=9)
    context = ContextNeeds(64, 2, PLAIN, kv_unified=True, n_window=512)
    size = size_prompt_cache(OPTIONS, probe, 1 << 30, context)
    assert (size.n_part, size.state_bytes) == (n_part, 0)


def test_without_a_gpu_a_model_is_measured_once_after_its_probe(tiny_model, monkeypatch):
    made, make = [], llama_cpp.llama_init_from_model
    monkeypatch.setattr(llama_cpp, "llama_init_from_model", lambda *given: made.append(1) or make(*given))
    plan_memory(tiny_model("llama"), OPTIONS)
    assert len(made) == 2


# With a GPU: a fake, on which llama.cpp computes nothing


@pytest.fixture
def gpu(monkeypatch):
    """One with so many bytes free, beside a host with a GB."""

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
    assert "needed on GPU0" in plan_memory(path, options).placement.problem
    with pytest.raises(ModelLoadError, match="needed on GPU0"):
        Model(path, options)


def test_heads_that_are_not_loaded_take_nothing(tiny_with_heads):
    path = tiny_with_heads("qwen35")
    without, loaded = (plan_memory(path, OPTIONS, with_heads=heads).placement for heads in (False, True))
    assert loaded.host_weights > without.host_weights


def test_a_token_reads_all_weights_but_embeddings_and_other_experts(tiny_model):
    dense, mixture = tiny_model("llama"), tiny_model("qwen3moe")
    sizes = tensor_sizes(dense)
    assert plan_memory(dense, OPTIONS).step_bytes == sum(sizes.values()) - sizes["token_embd.weight"]
    sizes = tensor_sizes(mixture)
    n_experts = sum(size for name, size in sizes.items() if "_exps" in name)
    read = plan_memory(mixture, OPTIONS).step_bytes
    others = sum(sizes.values()) - n_experts - sizes["token_embd.weight"]
    assert others < read < others + n_experts


def test_embeddings_that_are_the_output_too_are_read():
    sizes = tensor_sizes(builtin_target())
    assert "output.weight" not in sizes
    assert plan_memory(builtin_target(), OPTIONS).step_bytes == sum(sizes.values())
