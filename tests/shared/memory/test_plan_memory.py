"""Memory plans for tiny models of each kind."""

import re
from types import SimpleNamespace

import llama_cpp
import psutil
import pytest

from shared.errors import ModelLoadError
from shared.llama.gguf_metadata import tensor_sizes
from shared.llama.model import Model
from shared.memory.plan_memory import plan_memory
from shared.model_files.builtin import builtin_target
from shared.settings.model_options import ModelOptions
from tests.tiny_models import WINDOW

OPTIONS = ModelOptions(threads=1, ctx_size=512, parallel=2)


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "qwen35", "jamba", "lfm2"])
def test_what_a_model_keeps_of_texts_does_not_depend_on_who_places_layers(
    tiny_model, monkeypatch, architecture
):
    placed = plan_memory(tiny_model(architecture), OPTIONS)
    monkeypatch.setattr("shared.memory.plan_memory.RINGS", ())
    alone = plan_memory(tiny_model(architecture), OPTIONS)
    assert alone.placement is None
    assert alone.options.n_gpu_layers == OPTIONS.n_gpu_layers
    assert (alone.context, alone.size, alone.step_bytes) == (placed.context, placed.size, placed.step_bytes)


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
    expected = (True, WINDOW, n_with_spare)
    assert (plan.context.is_guarded, plan.context.n_window, plan.parameters.n_seq_max) == expected
    assert not plan_memory(tiny_model("gemma3"), OPTIONS).context.is_guarded


def test_without_a_gpu_a_model_is_measured_once_after_its_probe(tiny_model, monkeypatch):
    made, make = [], llama_cpp.llama_init_from_model
    monkeypatch.setattr(llama_cpp, "llama_init_from_model", lambda *given: made.append(1) or make(*given))
    plan_memory(tiny_model("llama"), OPTIONS)
    assert len(made) == 2


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


def refused(path, n_ctx, **options):
    asked = OPTIONS.model_copy(update={"ctx_size": n_ctx, **options})
    placement = plan_memory(path, asked).placement
    return placement.problem


def test_a_context_that_host_memory_cannot_hold_is_refused_and_told_what_fits(tiny_model, monkeypatch):
    path = tiny_model("llama")
    monkeypatch.setattr("shared.memory.plan_memory.free_memory", lambda: 50_000_000)
    said = refused(path, 4_000_000)
    found = re.search(r"needs .* of memory with 4000000 tokens, but only 50 MB are free: .* to (\d+)", said)
    assert refused(path, int(found[1])) == ""
    assert refused(path, 4_000_000, fit="off") == ""
    with pytest.raises(ModelLoadError, match="the context needs"):
        Model(plan_memory(path, OPTIONS.model_copy(update={"ctx_size": 4_000_000})))


def test_who_has_swap_is_told_how_to_use_it(tiny_model, monkeypatch):
    monkeypatch.setattr("shared.memory.plan_memory.free_memory", lambda: 50_000_000)
    assert "--fit off" in refused(tiny_model("llama"), 4_000_000)


def test_weights_count_only_if_they_are_not_mapped(tiny_model, monkeypatch):
    path = tiny_model("llama")
    n_texts = plan_memory(path, OPTIONS).size.total
    monkeypatch.setattr("shared.memory.plan_memory.free_memory", lambda: n_texts)
    assert refused(path, 512) == ""
    assert "and context need" in refused(path, 512, load_mode="none")
