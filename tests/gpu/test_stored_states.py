"""Texts and states in pinned memory come back unchanged, on one or two GPUs, which may be software."""

import numpy as np
import pytest

from shared.cache_edits import Snapshot
from shared.llama import host_memory
from shared.llama.model import Model
from shared.memory.plan_memory import plan_memory
from shared.settings.model_options import ModelOptions
from tests.shared.llama.conftest import read
from tests.traffic import Traffic, compare

pytestmark = pytest.mark.gpu

BOUND = 0.05
"""The largest difference of logits, whose standard deviation is 2.4."""
TEXT = [(7 * i) % 4000 for i in range(150)]
OTHER = [(11 * i) % 4000 for i in range(100)]


@pytest.fixture(autouse=True)
def taken(monkeypatch):
    """All blocks of host memory. Even small blocks are pinned."""
    blocks, take = [], host_memory.HostMemory.take

    def note(memory, size):
        blocks.append(take(memory, size))
        return blocks[-1]

    monkeypatch.setattr(host_memory, "_MIN_BYTES", 1)
    monkeypatch.setattr(host_memory.HostMemory, "take", note)
    return blocks


@pytest.mark.parametrize(
    ("architecture", "placement"),
    [
        ("llama", {"n_gpu_layers": 99}),
        ("llama", {"n_gpu_layers": 2}),
        ("qwen35", {"n_gpu_layers": 99}),
    ],
    ids=str,
)
def test_logits_after_traffic_are_the_cpus(tiny_model, taken, architecture, placement):
    traffic = Traffic(tiny_model(architecture), flash_attn="off", placement=placement)
    assert compare(traffic, 30).n_wrong(BOUND) == 0
    assert taken
    assert all(block.is_pinned for block in taken)


def loaded(path, **options):
    asked = ModelOptions(threads=1, ctx_size=1024, parallel=3, flash_attn="off", **options)
    return Model(plan_memory(path, asked))


def test_a_text_comes_back_into_another_slot_and_its_memory_is_used_again(tiny_model, taken):
    model = loaded(tiny_model("llama"), n_gpu_layers=99)
    read(model, 0, 0, TEXT)
    for key in (7, 8):
        model.store(0, Snapshot("text", key, 100))
    expected = read(model, 0, 150, OTHER)
    model.trim(0, 0)
    model.restore(1, Snapshot("text", 7, 100), 100)
    model.forget(8)
    model.store(1, Snapshot("text", 9, 100))
    assert taken[2] is taken[1]
    model.restore(2, Snapshot("text", 9, 100), 100)
    for slot in (1, 2):
        read(model, slot, 100, TEXT[100:])
        assert np.abs(read(model, slot, 150, OTHER) - expected).max() < BOUND
    model.close()


def test_a_cache_on_the_cpu_is_stored_in_other_memory(tiny_model, taken):
    model = loaded(tiny_model("llama"), n_gpu_layers=99, kv_offload=False)
    read(model, 0, 0, TEXT)
    model.store(0, Snapshot("text", 7, 100))
    model.close()
    assert [block.is_pinned for block in taken] == [False]
