import numpy as np

from shared.llama.span import Span
from shared.llama.vocabulary import Vocabulary
from shared.model_files.builtin import builtin_target
from shared.settings.model_options import ModelOptions
from tests.tiny_models import TinyModel, write_tiny_model


def test_weights_depend_on_the_seed_alone(opened, tmp_path):
    options = ModelOptions(ctx_size=64, parallel=1, batch_size=64, threads=1)
    seeds = {"one": 1, "same": 1, "other": 2}
    paths = [write_tiny_model(TinyModel("llama", n), tmp_path / f"{name}.gguf") for name, n in seeds.items()]
    one, same, other = (opened(path, options).decode([Span(0, 0, [5, 6, 7], 1)])[0] for path in paths)
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_the_vocabulary_is_another_model_s(tiny_model):
    written, source = Vocabulary.load(tiny_model("llama")), Vocabulary.load(builtin_target())
    assert written.n_tokens == source.n_tokens
    assert written.detokenize([300, 301]) == source.detokenize([300, 301])
