"""The hidden states of a real (tiny, random) model."""

import numpy as np

from bench.tiny_models import TinyModel, write_tiny_model
from shared.llama.model import Model
from shared.llama.span import Span
from shared.settings.model_options import ModelOptions


def test_there_is_a_row_for_each_token_of_a_decode(tmp_path):
    path = tmp_path / "model.gguf"
    write_tiny_model(TinyModel("qwen35", n_layers=5, settings={"nextn_predict_layers": 1}), path)
    model = Model(path, ModelOptions(ctx_size=256, parallel=1, threads=1), with_heads=True)
    model.decode([Span(0, 0, [5, 6, 7], 1)])
    states = model._hidden_source
    rows = states.table(3).copy()
    model.close()
    assert rows.shape == (3, states.width)
    assert len(np.unique(rows, axis=0)) == 3
