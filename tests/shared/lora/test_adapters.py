import functools
import os
import shutil

import gguf
import numpy as np
import pytest

from shared.errors import ModelLoadError
from shared.llama.model import Model
from shared.llama.span import Span
from shared.lora import adapters
from shared.memory.plan_memory import plan_memory
from shared.settings.model_options import ModelOptions
from tests.tiny_models import write_and_close

RANK, ALPHA = 4, 8.0
TARGETS = ("blk.0.attn_q.weight", "blk.1.ffn_up.weight", "blk.2.ffn_down.weight")
TOKENS = list(range(30, 60))


def options(*lora):
    exact = {"flash_attn": "off", "repack": False, "cache_type_k": "f32", "cache_type_v": "f32"}
    return ModelOptions(ctx_size=256, parallel=1, threads=1, lora=lora, **exact)


@functools.cache
def factors(path):
    """Random A and B for each target, by name."""
    rng = np.random.default_rng(1)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    found = {}
    for name in TARGETS:
        n_in, n_out = map(int, tensors[name].shape)
        found[name] = (
            rng.normal(0, 0.1, (RANK, n_in)).astype(np.float32),
            rng.normal(0, 0.1, (n_out, RANK)).astype(np.float32),
        )
    return found


def write_adapter(path, pairs, architecture="llama", kind="adapter", more=None):
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type(kind)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", ALPHA)
    for key, value in (more or {}).items():
        writer.add_key_value(key, value, gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT32)
    for name, (a, b) in pairs.items():
        writer.add_tensor(f"{name}.lora_a", a)
        writer.add_tensor(f"{name}.lora_b", b)
    write_and_close(writer)
    return path


@pytest.fixture(scope="module")
def base(tiny_model, tmp_path_factory):
    """A model without scales of its tensors, which llama.cpp does not apply to an adapter's part."""
    path = shutil.copy(tiny_model("llama"), tmp_path_factory.mktemp("base") / "base.gguf")
    for tensor in gguf.GGUFReader(path, "r+").tensors:
        if tensor.name.endswith(".scale"):
            tensor.data[:] = 1.0
    return path


@pytest.fixture
def adapter(base, tmp_path):
    return write_adapter(tmp_path / "adapter.gguf", factors(base))


def merged(base, path, scale):
    shutil.copy(base, path)
    for tensor in gguf.GGUFReader(path, "r+").tensors:
        if tensor.name in TARGETS:
            a, b = factors(base)[tensor.name]
            tensor.data[:] += scale * ALPHA / RANK * (b @ a)
    return path


def logits(path, *lora):
    model = Model(plan_memory(path, options(*lora)))
    try:
        return model.decode([Span(0, 0, TOKENS, n_logits=len(TOKENS))])[0].copy()
    finally:
        model.close()


@pytest.mark.parametrize("scale", [1.0, 0.5, -2.0])
def test_logits_are_those_of_merged_weights(base, adapter, tmp_path, scale):
    applied = logits(base, f"{adapter}:{scale}" if scale != 1.0 else str(adapter))
    assert np.abs(applied - logits(base)).max() > 0.1
    assert np.abs(applied - logits(merged(base, tmp_path / "merged.gguf", scale))).max() < 1e-3


def test_several_are_added(base, adapter, tmp_path):
    other = shutil.copy(adapter, tmp_path / "other.gguf")
    applied = logits(base, f"{adapter}:0.25", f"{other}:0.5")
    assert np.abs(applied - logits(merged(base, tmp_path / "merged.gguf", 0.75))).max() < 1e-3


def test_their_memory_counts(base, adapter):
    n_more = plan_memory(base, options(str(adapter))).step_bytes - plan_memory(base, options()).step_bytes
    assert n_more == sum(a.nbytes + b.nbytes for a, b in factors(base).values())


@pytest.mark.parametrize("is_adapter", [True, False])
def test_a_file_that_is_replaced_while_it_is_loaded_is_refused(
    base, adapter, tmp_path, monkeypatch, is_adapter
):
    """Its texts could be kept for another file."""
    path = shutil.copy(base, tmp_path / "model.gguf")
    load = adapters.load_adapters

    def replace(*arguments):
        loaded = load(*arguments)
        os.utime(adapter if is_adapter else path, (0, 0))
        return loaded

    monkeypatch.setattr(adapters, "load_adapters", replace)
    with pytest.raises(ModelLoadError, match="changed while it was loaded"):
        Model(plan_memory(path, options(str(adapter))))


def refused(base, path):
    with pytest.raises(ModelLoadError) as refusal:
        Model(plan_memory(base, options(str(path))))
    return str(refusal.value)


def test_another_kind_of_file_is_refused(base, tmp_path):
    assert "is not a LoRA adapter" in refused(base, base)
    (tmp_path / "text").write_text("not a GGUF")
    assert "is not a LoRA adapter" in refused(base, tmp_path / "text")
    assert "is not a LoRA adapter" in refused(
        base, write_adapter(tmp_path / "a", factors(base), kind="model")
    )


def test_an_adapter_of_another_architecture_is_refused(base, tmp_path):
    path = write_adapter(tmp_path / "a", factors(base), "qwen3")
    assert f"for qwen3 models; the architecture of {base} is llama" in refused(base, path)
    with pytest.raises(ModelLoadError, match="qwen3"):
        plan_memory(base, options(str(path)))  # so `--check` says it, too


def test_an_adapter_of_another_shape_or_with_other_tensors_is_refused(base, tmp_path):
    a, b = factors(base)[TARGETS[0]]
    assert "incorrect shape" in refused(base, write_adapter(tmp_path / "a", {TARGETS[0]: (a[:, :-32], b)}))
    assert "does not exist" in refused(base, write_adapter(tmp_path / "b", {"blk.77.attn_q.weight": (a, b)}))


def test_a_file_that_was_cut_off_is_refused(base, adapter):
    adapter.write_bytes(adapter.read_bytes()[:-1000])
    assert "cannot be applied" in refused(base, adapter)


def test_an_activated_adapter_is_refused(base, tmp_path):
    more = {"adapter.alora.invocation_tokens": [5, 6]}
    assert "aLoRA" in refused(base, write_adapter(tmp_path / "a", factors(base), more=more))
