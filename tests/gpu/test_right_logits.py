"""Whatever traffic has left in a cache on a GPU, logits are the CPU's for the same tokens in an empty cache.

Traffic reuses, copies, cuts back, stores in host memory and loads, in each kind of memory.
"""

import pytest

from tests.traffic import Traffic, TrafficRun

pytestmark = pytest.mark.gpu

BOUND = 0.05
"""Of logits whose standard deviation is 2.4."""
ALL = {"n_gpu_layers": 99}
N_COMPARISONS = 30
N_AFTER_LOADING = 10


def n_wrong(model, placement, bound=BOUND, *, loads=False, **more):
    """Of at least `N_COMPARISONS` rows; `loads`: the last of them after a text has come from host memory."""
    run = TrafficRun(Traffic(model, flash_attn="off", placement=placement, **more))
    try:
        while loads and run.target.n_loaded == 0:
            run.step()
        return run.run(max(N_COMPARISONS, len(run.comparison.differences) + N_AFTER_LOADING)).n_wrong(bound)
    finally:
        run.close()


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "qwen35", "mamba2"])
def test_with_all_layers(tiny_model, architecture):
    assert n_wrong(tiny_model(architecture), ALL, loads=True) == 0


def test_with_all_layers_of_a_hybrid_with_experts(tiny_model):
    """The same texts, read into an empty cache of the device, differ from the CPU by .044: it rounds more."""
    assert n_wrong(tiny_model("jamba"), ALL, bound=2 * BOUND) == 0


@pytest.mark.parametrize("placement", [{"n_gpu_layers": 2}, ALL | {"kv_offload": False}], ids=str)
@pytest.mark.parametrize("architecture", ["llama", "gemma3", "qwen35"])
def test_with_a_part_of_it(tiny_model, architecture, placement):
    assert n_wrong(tiny_model(architecture), placement) == 0


def test_with_cells_of_its_own_for_each_slot(tiny_model):
    assert n_wrong(tiny_model("llama"), ALL | {"kv_unified": False}) == 0


@pytest.mark.parametrize(
    "placement",
    [ALL, ALL | {"tensor_split": (3.0, 1.0)}, ALL | {"split_mode": "none", "main_gpu": 1}],
    ids=str,
)
@pytest.mark.usefixtures("two_gpus")
def test_on_two(tiny_model, placement):
    assert n_wrong(tiny_model("llama"), placement) == 0


def test_with_heads_that_draft(tiny_with_heads):
    assert n_wrong(tiny_with_heads("qwen35"), ALL) == 0


def test_with_a_cache_in_half_precision(tiny_model):
    assert n_wrong(tiny_model("llama"), ALL, cache_type="f16") == 0


def test_with_quantized_keys(tiny_model):
    """Values cannot be quantized without flash attention. On the CPU they are in f32."""
    assert n_wrong(tiny_model("llama"), ALL | {"cache_type_k": "q8_0"}) == 0
