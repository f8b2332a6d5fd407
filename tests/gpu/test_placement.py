"""Weights and caches are where the placement says, on one or two GPUs, which may be software."""

import re
from collections import Counter

import numpy as np
import pytest

from shared.errors import ModelLoadError
from shared.llama import devices, library
from shared.llama.model import Model
from shared.llama.placement import CACHE, COMPUTING, CPU, EXPERTS
from shared.llama.span import Span
from shared.memory.plan_memory import plan_memory
from shared.settings.model_options import ModelOptions
from tests.tiny_models import TinyModel, write_tiny_model

pytestmark = pytest.mark.gpu

TEXT = [300, 12, 77, 1000, 5, 9, 2, 8]
BOUND = 0.05
"""The largest difference of logits, with f32 weights and without flash attention."""
_BUFFER = re.compile(r"(\S+) +(model|KV|RS|compute) buffer size = +([\d.]+) MiB")
_ASSIGNED = re.compile(r"load_tensors: layer +(\d+) assigned to device (\S+),")
KINDS = {CACHE: "KV", COMPUTING: "compute"}
N_LAYERS = 8


@pytest.fixture(scope="module")
def gpus():
    library.start()
    return [device.name for device in devices.all_devices()]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A dense model and a mixture of experts, of a few MB each, by name."""
    folder = tmp_path_factory.mktemp("models")

    def write(name, architecture):
        return write_tiny_model(TinyModel(architecture, width=256, n_layers=N_LAYERS, sd=0.05), folder / name)

    return {"dense": write("dense.gguf", "llama"), "mixture": write("mixture.gguf", "qwen3moe")}


def loaded(path, **options):
    """(model, logged MiB by device and kind, logged device of each layer)."""
    asked = ModelOptions(**{"threads": 2, "ctx_size": 1024, "parallel": 2, "flash_attn": "off"} | options)
    with library.captured_log() as lines:
        model = Model(plan_memory(path, asked))
    last = max(i for i, line in enumerate(lines) if "loading model tensors" in line)
    sizes, layers = Counter(), {}
    for line in lines[last:]:
        if found := _BUFFER.search(line):
            sizes[found[1], found[2]] += float(found[3])
        elif found := _ASSIGNED.search(line):
            layers[int(found[1])] = found[2]
    return model, sizes, layers


def named(value, gpus):
    """An option's value with the device names of this machine, such as Vulkan0."""
    if not (isinstance(value, tuple) and all(isinstance(each, str) for each in value)):
        return value
    return tuple(re.sub(r"GPU(\d)", lambda found: gpus[int(found[1])], each) for each in value)


def logits(model):
    (rows,) = model.decode([Span(0, 0, TEXT, len(TEXT))])
    return np.array(rows)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dense", {}),
        ("dense", {"n_gpu_layers": 3}),
        ("dense", {"n_gpu_layers": 99, "kv_offload": False}),
        ("dense", {"n_gpu_layers": 99, "tensor_split": (3, 1)}),
        ("dense", {"n_gpu_layers": 7, "tensor_split": (1, 2)}),
        ("dense", {"n_gpu_layers": 99, "split_mode": "none", "main_gpu": 1}),
        ("dense", {"device": ("GPU1", "GPU0"), "tensor_split": (3, 1)}),
        ("mixture", {"n_gpu_layers": 99, "n_cpu_moe": 3}),
        ("mixture", {"n_gpu_layers": 99, "cpu_moe": True}),
        ("mixture", {"override_tensor": (r"blk\.[0-3]\.ffn_.*exps=GPU0", "exps=CPU")}),
        ("mixture", {"override_tensor": (r"attn=CPU",), "n_cpu_moe": 2, "n_gpu_layers": 5}),
    ],
    ids=str,
)
def test_buffers_are_where_they_were_said_to_be_and_logits_are_the_cpus(gpus, models, name, options):
    if len(gpus) < 2 and {"tensor_split", "main_gpu"} & options.keys():
        pytest.skip("one device")
    options = {option: named(value, gpus) for option, value in options.items()}
    reference, _, _ = loaded(models[name], n_gpu_layers=0)
    expected = logits(reference)
    reference.close()
    model, sizes, layers = loaded(models[name], **options)
    found = logits(model)
    model.close()
    for gpu in gpus:
        stated = Counter[str]()
        for (group, place), n_bytes in model.plan.placement.parts.items():
            if place == gpu:
                stated[KINDS.get(group, "model")] += n_bytes / (1 << 20)
        assert stated["model"] == pytest.approx(sizes[gpu, "model"], abs=0.05)
        assert stated["KV"] == pytest.approx(sizes[gpu, "KV"], abs=0.05)
        # llama.cpp's own estimate, which for graphs this small may be some MiB too much
        assert stated["compute"] == pytest.approx(sizes[gpu, "compute"], rel=0.05, abs=10)
    caches = {place for (group, place) in model.plan.placement.parts if group == CACHE}
    if options.get("kv_offload", True):
        assert caches == {layers[i] for i in range(N_LAYERS)}
    assert np.abs(found - expected).max() <= BOUND
    margins = np.diff(np.sort(expected)[:, -2:])[:, 0]
    same = found.argmax(1) == expected.argmax(1)
    assert same[margins > 2 * BOUND].all()


def test_experts_are_on_the_cpu(gpus, models):
    model, _, _ = loaded(models["mixture"], n_gpu_layers=99, n_cpu_moe=N_LAYERS // 2)
    model.close()
    parts = model.plan.placement.parts
    assert parts[EXPERTS, CPU] == sum(parts.get((EXPERTS, gpu), 0) for gpu in gpus)


def test_what_does_not_fit_is_refused_without_a_trace(models):
    library.start()
    n_bytes = 256 * 4 * 2 * N_LAYERS  # of keys and values of a token
    n_cells = sum(device.total for device in devices.all_devices()) // n_bytes + 4096
    with pytest.raises(ModelLoadError, match="Lower --ctx-size"):
        loaded(models["dense"], n_gpu_layers=99, ctx_size=n_cells, cache_type_k="f32", cache_type_v="f32")


def test_a_cache_with_larger_tensors_than_the_device_can_hold_stays_on_the_cpu(gpus, models):
    """llama.cpp would abort with such a tensor on the device."""
    library.start()
    device = devices.all_devices()[0]
    if device.max_tensor == device.total:
        pytest.skip("it holds what fits")
    n_cells = device.max_tensor // (256 * 2) + 4096
    options = ModelOptions(threads=2, ctx_size=n_cells, flash_attn="off")
    plan = plan_memory(models["dense"], options)
    assert [gpu for gpu in gpus if (CACHE, gpu) in plan.placement.parts] == []
    asked = options.model_copy(update={"n_gpu_layers": 99})
    assert "Lower --ctx-size" in plan_memory(models["dense"], asked).placement.problem
