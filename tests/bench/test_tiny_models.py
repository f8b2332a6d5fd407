import numpy as np
import pytest

from bench.tiny_models import ArchitectureError, TinyModel, write_metadata, write_tiny_model
from shared.llama.model import Model
from shared.llama.span import Span
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_target
from shared.settings.model_options import ModelOptions


def logits(path):
    model = Model(path, ModelOptions(ctx_size=64, parallel=1, batch_size=64, threads=1))
    row = model.decode([Span(0, 0, [5, 6, 7], 1)])[0][0].copy()
    model.close()
    return row


def test_weights_depend_on_the_seed_alone(tmp_path):
    one, same, other = (
        logits(write_tiny_model(TinyModel("llama", seed), tmp_path / f"{name}.gguf"))
        for name, seed in [("one", 1), ("same", 1), ("other", 2)]
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_the_vocabulary_is_another_model_s(tiny_model):
    written, source = Vocabulary.load(tiny_model("llama")), Vocabulary.load(builtin_target())
    assert written.n_tokens == source.n_tokens
    assert written.detokenize([300, 301]) == source.detokenize([300, 301])


def test_an_architecture_that_llama_cpp_lacks(tmp_path):
    with pytest.raises(ArchitectureError, match="does not make a nothing"):
        write_tiny_model(TinyModel("nothing"), tmp_path / "no.gguf")


def test_metadata_go_over_the_usual_ones(tmp_path):
    path = write_tiny_model(TinyModel("llama", settings={"context_length": 77}), tmp_path / "a.gguf")
    assert Vocabulary.load(path).info.n_ctx_train == 77


def test_a_file_without_tensors_has_a_vocabulary(tmp_path):
    path = write_metadata(TinyModel("llama"), tmp_path / "vocabulary.gguf")
    assert Vocabulary.load(path).info.architecture == "llama"
