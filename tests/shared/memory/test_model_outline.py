"""The sizes that are predicted equal the sizes that llama.cpp allocates."""

from dataclasses import dataclass, replace

import llama_cpp
import pytest

from shared.llama import library, unbound
from shared.llama.memory_size import graph_bytes, read_sizes
from shared.llama.model import Model
from shared.llama.native_parameters import context_parameters, model_parameters
from shared.memory.model_outline import MemoryProbe, ModelOutline
from shared.memory.plan_memory import plan_memory
from shared.settings.model_options import ModelOptions
from tests.tiny_models import N_CTX, WINDOW

OPTIONS = ModelOptions(threads=1, ctx_size=512, parallel=2, batch_size=64, ubatch_size=64)


def probe(path, options=OPTIONS):
    with ModelOutline.load(path, options) as outline:
        assert outline.n_ctx_train == N_CTX
        return outline.probe()


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("llama", MemoryProbe(False, False, 0, 4 * 256, 0, 0)),  # 4 layers, 64 keys and values in f16
        ("gemma3", MemoryProbe(False, False, WINDOW, 2 * 256, 2 * 256, 0)),
        ("qwen35", MemoryProbe(True, True, 0, 2 * 256, 0, 20_992)),
        ("jamba", MemoryProbe(True, False, 0, 2 * 256, 0, 35_840)),
    ],
)
def test_each_kind_of_memory_is_measured(tiny_model, architecture, expected):
    assert probe(tiny_model(architecture)) == expected


@pytest.mark.parametrize("swa_full", [False, True])
@pytest.mark.parametrize("architecture", ["llama", "gemma3", "qwen35", "lfm2", "jamba", "mamba2", "gpt-oss"])
def test_a_model_takes_what_was_stated_without_its_weights(tiny_model, architecture, swa_full):
    with library.captured_log() as lines:
        model = Model(
            plan_memory(tiny_model(architecture), OPTIONS.model_copy(update={"swa_full": swa_full}))
        )
    model.close()
    real = max(i for i, line in enumerate(lines) if line.startswith("llama_context: n_ctx "))
    taken = read_sizes(lines[real:])
    assert replace(model.plan.size, computing=taken.computing) == taken
    assert model.plan.size.computing > taken.computing  # graphs and the work buffer are not in the log


# What is stated for computing is what a context takes when it computes

N_CELLS, N_BATCH, N_HEADS = 2048, 256, 2


@dataclass
class Opened:
    context: object
    parameters: object


@pytest.fixture
def opened(tiny_model):
    """Opens a context of a tiny model with further options."""
    library.start()
    contexts, models = [], []

    def open_context(**options):
        chosen = ModelOptions(
            threads=1, ctx_size=N_CELLS, batch_size=N_BATCH, ubatch_size=N_BATCH, n_gpu_layers=0, **options
        )
        path = str(tiny_model("llama")).encode()
        models.append(llama_cpp.llama_model_load_from_file(path, model_parameters(chosen)))
        parameters = context_parameters(chosen, N_CELLS, 1)
        contexts.append(llama_cpp.llama_init_from_model(models[-1], parameters))
        return Opened(contexts[-1], parameters)

    yield open_context
    for context in contexts:
        llama_cpp.llama_free(context)
    for model in models:
        llama_cpp.llama_model_free(model)


def test_the_attention_scores_of_a_whole_batch_are_counted(opened):
    scores = N_CELLS * N_BATCH * N_HEADS * 2
    found = opened()
    assert scores <= graph_bytes(found.context, found.parameters) <= 2 * scores


def test_flash_attention_needs_no_scores(opened):
    with_scores, without = opened(), opened(flash_attn="on")
    n_with, n_without = (graph_bytes(each.context, each.parameters) for each in (with_scores, without))
    assert n_without < n_with - N_CELLS * N_BATCH * N_HEADS


def test_a_context_decodes_as_before_when_it_was_measured(opened):
    tokens = (llama_cpp.llama_token * 5)(3, 1, 4, 1, 5)
    logits = []
    for measured in (False, True):
        found = opened()
        if measured:
            graph_bytes(found.context, found.parameters)
        batch = llama_cpp.llama_batch_get_one(tokens, 5)
        assert llama_cpp.llama_decode(found.context, batch) == 0
        logits.append(llama_cpp.llama_get_logits_ith(found.context, -1)[:20])
    assert logits[0] == logits[1]


def test_a_build_that_does_not_tell_has_none(opened, monkeypatch):
    found = opened()
    monkeypatch.setitem(unbound._MANGLED, "llama_graph_reserve", ("no_such_function",))
    unbound.function.cache_clear()
    assert graph_bytes(found.context, found.parameters) == 0
