"""Whatever traffic has left in a cache on a GPU, logits are the CPU's for the same tokens in an empty cache.

Traffic reuses, copies, cuts back, stores in host memory and loads, in each kind of memory.
"""

import pytest

from bench.tiny_models import with_heads, write_tiny_model
from bench.traffic import Traffic, compare

pytestmark = pytest.mark.gpu

BOUND = 0.05
"""Of logits whose standard deviation is 2.4."""
ALL = {"n_gpu_layers": 99}


def n_wrong(model, placement, n_comparisons=30, **more):
    traffic = Traffic(model, flash_attn="off", placement=placement, **more)
    return compare(traffic, n_comparisons).n_wrong(BOUND)


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "qwen35", "mamba2", "jamba"])
def test_with_all_layers(tiny_model, architecture):
    assert n_wrong(tiny_model(architecture), ALL) == 0


@pytest.mark.parametrize(
    "placement",
    [
        {"n_gpu_layers": 2},
        ALL | {"kv_offload": False},
        ALL | {"kv_unified": False},
    ],
    ids=str,
)
def test_with_a_part_of_it(tiny_model, placement):
    assert n_wrong(tiny_model("llama"), placement) == 0


@pytest.mark.parametrize(
    "placement",
    [ALL, ALL | {"tensor_split": (3.0, 1.0)}, ALL | {"split_mode": "none", "main_gpu": 1}],
    ids=str,
)
@pytest.mark.usefixtures("two_gpus")
def test_on_two(tiny_model, placement):
    assert n_wrong(tiny_model("llama"), placement) == 0


def test_with_heads_that_draft(tmp_path):
    path = write_tiny_model(with_heads("qwen35"), tmp_path / "heads.gguf")
    assert n_wrong(path, ALL) == 0


def test_with_a_cache_in_half_precision(tiny_model):
    assert n_wrong(tiny_model("llama"), ALL, cache_type="f16") == 0
