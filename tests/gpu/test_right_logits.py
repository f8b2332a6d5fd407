"""After any traffic, logits on a GPU equal the CPU's logits for the same tokens in an empty cache.

The traffic reuses, copies and trims caches, stores them in host memory and loads them, in each kind of
memory.
"""

import pytest

from tests.traffic import Traffic, TrafficRun

pytestmark = pytest.mark.gpu

BOUND = 0.05
"""The largest difference of logits, whose standard deviation is 2.4."""
ALL = {"n_gpu_layers": 99}
N_COMPARISONS = 30
N_AFTER_LOADING = 10


def n_wrong(model, placement, bound=BOUND, *, loads=False, **more):
    """The number of wrong rows among at least `N_COMPARISONS`.

    `loads`: the last rows come after a text was loaded from host memory.
    """
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
    """The device rounds more: with an empty cache it differs from the CPU by .044 for the same texts."""
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
    """Only the keys: values cannot be quantized without flash attention. On the CPU the keys are in f32."""
    assert n_wrong(tiny_model("llama"), ALL | {"cache_type_k": "q8_0"}) == 0
