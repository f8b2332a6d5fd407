"""Of a real context: more than that a tiny model was trained with cannot be asked for."""

import dataclasses

from shared.llama.context_limits import ContextLimits, read_limits
from shared.llama.model import Model
from shared.settings.model_options import ModelOptions


def limits_of(path, n_ctx_train, **options):
    model = Model(
        path, ModelOptions(ctx_size=1024, parallel=2, batch_size=64, ubatch_size=32, threads=1, **options)
    )
    try:
        return read_limits(model._context, n_ctx_train)
    finally:
        model.close()


def test_with_one_pool_of_cells_a_slot_may_have_all_of_them(tiny_model):
    found = limits_of(tiny_model("llama"), 0)
    assert found == ContextLimits(n_ctx=1024, n_ctx_slot=1024, n_batch=64, n_ubatch=32)


def test_with_cells_of_its_own_a_slot_has_its_part(tiny_model):
    assert limits_of(tiny_model("llama"), 0, kv_unified=False).n_ctx_slot == 512


def test_no_slot_has_more_tokens_than_the_model_was_trained_with(tiny_model):
    found = limits_of(tiny_model("llama"), 300)
    assert found == dataclasses.replace(found, n_ctx=1024, n_ctx_slot=300)
