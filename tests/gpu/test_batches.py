"""A batch of several parts on one or two GPUs, which may be software. Two CUDA devices compute it in turn."""

import numpy as np
import pytest

from shared.llama import devices, library
from shared.llama.model import Model
from shared.llama.span import Span
from shared.memory.plan_memory import plan_memory
from shared.settings.model_options import ModelOptions

pytestmark = pytest.mark.gpu

BOUND = 0.05
"""The largest difference of logits, whose standard deviation is 2.4."""
TEXT = [(7 * i) % 4000 for i in range(300)]
PART = 64


@pytest.fixture(params=["layer", "none"])
def split_mode(request, n_gpus):
    if request.param == "layer" and n_gpus < 2:
        pytest.skip("one device")
    return request.param


def loaded(path, **options):
    """A model, and whether llama.cpp lets devices compute different parts at the same time."""
    asked = ModelOptions(threads=2, ctx_size=4096, parallel=1, flash_attn="off", **options)
    with library.captured_log() as lines:
        model = Model(plan_memory(path, asked))
    return model, any("pipeline parallelism enabled" in line for line in lines)


def logits(model):
    (rows,) = model.decode([Span(0, 0, TEXT, 3)])
    found = np.array(rows)
    model.close()
    return found


def test_a_long_prompt_is_read_in_one_batch_as_on_the_cpu(tiny_model, split_mode):
    path = tiny_model("llama")
    reference, _ = loaded(path, n_gpu_layers=0)
    assert reference.n_batch == 512
    model, overlaps = loaded(path, ubatch_size=PART, split_mode=split_mode)
    assert (model.n_batch, model.n_ubatch) == (2048, PART)
    on_vulkan = any(device.name.startswith("Vulkan") for device in devices.all_devices())
    assert overlaps == (split_mode == "layer" and not on_vulkan)
    assert np.abs(logits(model) - logits(reference)).max() < BOUND


def test_a_larger_batch_takes_no_more_memory(tiny_model, split_mode):
    sizes = []
    for batch_size in (512, 2048):
        model, _ = loaded(tiny_model("llama"), batch_size=batch_size, split_mode=split_mode)
        sizes.append((model.plan.size, model.plan.placement.parts))
        model.close()
    assert sizes[0] == sizes[1]
