"""What is stated for computing is what a context takes when it computes."""

from dataclasses import dataclass

import llama_cpp
import pytest

from shared.llama import devices, graph_size, library
from shared.llama.graph_size import graph_bytes
from shared.llama.native_parameters import context_parameters, model_parameters
from shared.settings.model_options import ModelOptions

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
    monkeypatch.setattr(graph_size, "_RESERVE", ("no_such_function",))
    assert graph_bytes(found.context, found.parameters) == 0


def test_beside_a_gpu_nothing_is_added(opened, monkeypatch):
    found = opened()
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    assert graph_bytes(found.context, found.parameters) == 0
