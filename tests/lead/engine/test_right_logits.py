"""After any traffic, logits equal the logits of the same tokens read into an empty cache.

The tests compare 40 rows of logits with one architecture for each kind of memory. `COMPARISONS=1000` compares
1000 rows in each run. `-m "models or not models"` then takes all architectures, which takes hours.
"""

import os
from dataclasses import replace
from itertools import product

import pytest

from shared.llama import batch_layout
from tests.conftest import more
from tests.traffic import Traffic, TrafficRun, compare

BOUND = 0.01
"""The largest difference, for logits of a standard deviation of 2.4.

It is far above the last bits of f32, and far below the effect of a missing key.
"""


ARCHITECTURES = [
    "llama",  # every layer sees everything
    more("deepseek2"),  # multi-head latent attention
    "gemma3",  # a sliding window in every second layer
    more("gpt-oss"),  # sliding windows, attention sinks and experts
    "qwen35",  # gated delta nets and attention
    more("lfm2"),  # short convolutions and attention
    "mamba2",  # a recurrent state alone
    more("qwen3next"),  # delta nets that cannot be rolled back
    "jamba",  # a recurrent state, attention and experts
]


N_COMPARISONS = int(os.environ.get("COMPARISONS", "40"))
ALL_ARCHITECTURES = """
llama deci falcon grok gpt2 gptneox mpt baichuan starcoder refact bloom stablelm qwen qwen2 qwen2moe
qwen2vl qwen3 qwen3moe qwen3vl qwen3vlmoe phi2 phimoe plamo codeshell orion internlm2 minicpm gemma
starcoder2 xverse command-r dbrx olmo olmoe openelm deepseek deepseek2 chatglm glm4 glm4moe jais
jais2 nemotron exaone granite granitemoe bailingmoe bailingmoe2 dots1 arcee ernie4_5 ernie4_5-moe
hunyuan-dense hunyuan-moe smollm3 seed_oss minimax-m2 pangu-embedded mistral3 maincoder nanbeige
gemma2 gemma3 cohere2 cohere2moe exaone4 exaone-moe olmo2 plamo3 gpt-oss smallthinker laguna llama4
afmoe muse-glimmer granite_swa mimo2 spark2_5 mellum qwen35 qwen35moe lfm2 lfm2moe nemotron_h
nemotron_h_moe qwen3next mamba mamba2 granitehybrid falcon-h1 jamba rwkv6
"""
"""The architectures of which llama.cpp makes a model from these metadata, and that it can decode.

It aborts when it builds MiniMax-01's graph. RWKV 7 is left out because with random weights it amplifies the
last bits, plamo2 because llama.cpp computes other logits where a pass has several tokens of several
sequences,
Chameleon because it expects its 8,192 image tokens in every vocabulary.
"""


def n_wrong(traffic, n_comparisons=0):
    return compare(traffic, max(N_COMPARISONS, n_comparisons)).n_wrong(BOUND)


@pytest.mark.models
@pytest.mark.timeout(0)
@pytest.mark.skipif("COMPARISONS" not in os.environ, reason="takes hours: COMPARISONS=1000")
def test_of_every_architecture(tiny_model):
    wrong = {}
    for architecture, kv_unified, is_cramped in product(
        ALL_ARCHITECTURES.split(), (True, False), (False, True)
    ):
        traffic = Traffic(tiny_model(architecture), kv_unified=kv_unified)
        if n := n_wrong(traffic.cramped() if is_cramped else traffic):
            wrong[architecture, kv_unified, is_cramped] = n
    assert wrong == {}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_in_one_pool_of_cells(tiny_model, architecture):
    assert n_wrong(Traffic(tiny_model(architecture))) == 0


@pytest.mark.parametrize(
    ("architecture", "seed"),
    [("lfm2", 2), ("qwen35", 3)],
    ids=["windows beside recurrent states", "another pass before rolling them back"],
)
def test_where_some_rows_were_wrong(tiny_model, architecture, seed):
    assert n_wrong(Traffic(tiny_model(architecture), seed=seed), 150) == 0


@pytest.mark.parametrize(
    ("architecture", "options"),
    [("qwen35", {}), more("qwen35", {"kv_unified": False}), more("qwen3next", {}), more("glm4moe", {})],
)
def test_beside_heads_that_draft(tiny_with_heads, architecture, options):
    assert n_wrong(Traffic(tiny_with_heads(architecture), **options), 80) == 0


@pytest.mark.parametrize("architecture", ["gemma3", more("gpt-oss")])
def test_with_all_tokens_of_sliding_windows(tiny_model, architecture):
    assert n_wrong(Traffic(tiny_model(architecture), swa_full=True)) == 0


@pytest.mark.parametrize("architecture", ["llama", more("gemma3"), more("gpt-oss"), "qwen35", more("jamba")])
def test_with_cells_of_its_own_for_each_slot(tiny_model, architecture):
    assert n_wrong(Traffic(tiny_model(architecture), kv_unified=False)) == 0


@pytest.mark.parametrize(
    ("architecture", "kv_unified"),
    [
        ("llama", True),
        more("llama", False),
        ("gemma3", True),
        ("qwen35", True),
        more("qwen35", False),
        more("jamba", True),
    ],
)
def test_when_the_cells_run_out(tiny_model, architecture, kv_unified):
    assert n_wrong(Traffic(tiny_model(architecture), kv_unified=kv_unified).cramped()) == 0


@pytest.mark.parametrize(("architecture", "swa_full"), [("llama", False), ("gemma3", True)])
def test_in_steps_that_are_padded(tiny_model, architecture, swa_full):
    assert n_wrong(Traffic(tiny_model(architecture), swa_full=swa_full, padded=True)) == 0
    assert n_wrong(Traffic(tiny_model(architecture), swa_full=swa_full, padded=True).cramped()) == 0


@pytest.mark.parametrize("architecture", ["llama", more("gpt-oss")])
def test_in_exact_mode_not_a_bit_differs(tiny_model, architecture):
    traffic = Traffic(tiny_model(architecture), exact=True, cache_type="f16")
    assert compare(traffic, 60).worst == 0


@pytest.mark.models
@pytest.mark.parametrize("model", ["smollm2", "gemma3"])
def test_in_exact_mode_not_a_bit_of_quantized_weights_differs(request, model):
    """Q4_1, whose sizes from 2 to 6 agree, and Q4_K_M, whose repacked weights are computed in fours."""
    traffic = Traffic(request.getfixturevalue(model), n_slots=2, n_ctx=1536, exact=True, cache_type="f16")
    assert compare(traffic, 15).worst == 0


def test_where_prompts_are_read_apart(tiny_model, monkeypatch):
    monkeypatch.setattr(batch_layout, "_MIN_CELLS", 1)
    monkeypatch.setattr(batch_layout, "TILE", 2)
    comparison = compare(Traffic(tiny_model("llama"), flash_attn="on"), 40)
    assert comparison.n_wrong(5 * BOUND) == 0  # flash attention rounds sums to f16


@pytest.mark.parametrize(("architecture", "cache_type"), [("llama", "q8_0"), more("gpt-oss", "f16")])
def test_with_a_cache_of_fewer_bits(tiny_model, architecture, cache_type):
    assert n_wrong(Traffic(tiny_model(architecture), cache_type=cache_type)) == 0


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("llama", {}),
        more("llama", {"kv_unified": False}),
        ("gemma3", {}),
        ("gemma3", {"swa_full": True}),
        more("llama4", {"swa_full": True}),  # windows that begin at multiples of their length
        *(more(architecture, {}) for architecture in ("gpt-oss", "deepseek2", "lfm2", "jamba")),
        ("qwen35", {}),
        more("qwen35", {"kv_unified": False}),
        ("mamba2", {}),
        ("qwen2vl", {"images": "grid"}),
    ],
)
def test_after_restarts_with_texts_from_disk(tiny_model, tmp_path, architecture, options):
    run = run_with_restarts(Traffic(tiny_model(architecture), disk=tmp_path, **options))
    assert run.n_read >= 5
    assert run.comparison.n_wrong(BOUND) == 0


def test_in_exact_mode_not_a_bit_differs_after_restarts(tiny_model, tmp_path):
    traffic = Traffic(tiny_model("llama"), disk=tmp_path, exact=True, cache_type="f16")
    run = run_with_restarts(traffic)
    assert run.n_read >= 5
    assert run.comparison.worst == 0


def test_heads_draft_after_a_restart(tiny_with_heads, tmp_path):
    assert run_with_restarts(Traffic(tiny_with_heads("qwen35"), disk=tmp_path)).comparison.n_wrong(BOUND) == 0


def run_with_restarts(traffic):
    """A run that has ended."""
    run = TrafficRun(traffic)
    try:
        for n_steps in range(1, 200):
            run.step()
            if n_steps % 20 == 0:
                run.restart()
    finally:
        run.close()
    return run


def n_wrong_after_shifts(path, **options):
    traffic = Traffic(path, n_ctx=128, n_slots=2, n_requests_at_once=2, endless=1.0, n_keep=9, **options)
    run = TrafficRun(traffic)
    try:
        while run.n_beyond < 15:
            run.step()
    finally:
        run.close()
    return run.comparison.n_wrong(BOUND)


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        more("llama", {}),
        more("llama", {"kv_unified": False}),
        ("gemma3", {}),
        more("gemma3", {"swa_full": True}),
        more("gpt-oss", {}),
        more("qwen35", {}),
        ("mamba2", {}),
        more("gpt2", {}),  # learned positions
    ],
)
def test_after_context_shifts(tiny_model, architecture, options):
    assert n_wrong_after_shifts(tiny_model(architecture), **options) == 0


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("gemma3", {"images": "whole"}),
        ("gemma3", {"images": "whole", "swa_full": True}),
        ("qwen2vl", {"images": "grid"}),
        more("qwen2vl", {"images": "grid", "kv_unified": False}),
    ],
)
def test_with_images_in_prompts(tiny_model, architecture, options):
    assert n_wrong(Traffic(tiny_model(architecture), **options), 60) == 0


def test_with_images_when_the_cells_run_out(tiny_model):
    assert n_wrong(replace(Traffic(tiny_model("qwen2vl"), images="grid").cramped(), n_keep=None)) == 0
