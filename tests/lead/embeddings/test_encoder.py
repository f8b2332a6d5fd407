from array import array

import gguf
import llama_cpp.llama
import numpy as np
import pytest

from lead.embeddings.encoder import VectorEncoder, normalized
from lead.embeddings.encoder_messages import EncodedText, LoadEncoder
from shared.errors import ModelLoadError
from shared.llama.vocabulary import Vocabulary
from tests.conftest import more
from tests.lead.embeddings.conftest import WORDS
from tests.minilm import minilm, minilm_folder, reference_vector, tiny_bert, weights
from tests.tiny_models import TinyModel, write_tiny_model

RANDOM = {
    "bert, mean": ("bert", gguf.PoolingType.MEAN),
    "bert, first": ("bert", gguf.PoolingType.CLS),
    "qwen3, last": ("qwen3", gguf.PoolingType.LAST),
    "gemma, mean": ("gemma-embedding", gguf.PoolingType.MEAN),
}
OTHERS = {
    "llama, mean": ("llama-embed", gguf.PoolingType.MEAN),
    "T5's encoder, mean": ("t5encoder", gguf.PoolingType.MEAN),
    "qwen3, mean": ("qwen3", gguf.PoolingType.MEAN),
    "qwen3, first": ("qwen3", gguf.PoolingType.CLS),
}


def written(tmp_path, architecture, pooling):
    path = tmp_path / "model.gguf"
    if architecture == "bert":
        return tiny_bert(path, WORDS, pooling=pooling, n_ctx=512)
    model = TinyModel(architecture, settings={"pooling_type": int(pooling)})
    return write_tiny_model(model, path)


def tokens(n, seed=1):
    return array("i", np.random.default_rng(seed).integers(5, 40, n).tolist())


def vectors(encoder, *texts, **options):
    batch = [EncodedText(text, **options) for text in texts]
    return [np.frombuffer(each, np.float32) for each in encoder.encode(batch)]


@pytest.fixture
def encoder(bert):
    encoder = VectorEncoder(LoadEncoder(bert, 1))
    yield encoder
    encoder.close()


@pytest.mark.parametrize(
    ("architecture", "pooling"),
    [
        *(pytest.param(*case, id=name) for name, case in RANDOM.items()),
        *(more(*case) for case in OTHERS.values()),
    ],
)
def test_a_text_alone_and_among_others_has_the_vector_of_llama_cpp(tmp_path, architecture, pooling):
    path = written(tmp_path, architecture, pooling)
    texts = [tokens(n, seed=n) for n in (7, 40, 1, 22)]
    encoder = VectorEncoder(LoadEncoder(path, 1))
    together, twice = vectors(encoder, *texts), vectors(encoder, *texts)
    alone = [vectors(encoder, text)[0] for text in texts]
    encoder.close()
    expected = of_llama_cpp(path, texts, pooling)
    # In f32 but for attention, where llama.cpp's CPU kernel has keys and values in f16.
    for found in (together, twice, alone):
        assert np.abs(np.array(found) - expected).max() < 5e-4


def test_a_model_that_continues_texts_can_give_the_mean_of_its_states(tiny_model):
    texts = [tokens(n, seed=n) for n in (7, 64, 150)]
    encoder = VectorEncoder(LoadEncoder(tiny_model("llama"), 1, continues_texts=True))
    found = np.array(vectors(encoder, *texts))
    encoder.close()
    assert np.abs(found - of_llama_cpp(tiny_model("llama"), texts, gguf.PoolingType.MEAN)).max() < 5e-4


def of_llama_cpp(path, texts, pooling):
    """The vectors by the high-level class of llama-cpp-python, one text at a time."""
    model = llama_cpp.llama.Llama(
        str(path),
        embedding=True,
        pooling_type=int(pooling),
        n_ctx=512,
        n_batch=512,
        n_ubatch=512,
        n_threads=1,
        verbose=False,
    )
    model.tokenize = lambda number: texts[int(number)].tolist()
    found = [model.embed(str(number), normalize=True) for number in range(len(texts))]
    model.close()
    return np.array(found, np.float32)


def test_only_the_first_dimensions_are_a_vector_of_the_usual_length(encoder):
    (whole,), (cut,) = vectors(encoder, tokens(5)), vectors(encoder, tokens(5), n_dimensions=8)
    assert len(cut) == 8
    assert cut == pytest.approx(whole[:8] / np.linalg.norm(whole[:8]), abs=1e-6)


@pytest.mark.parametrize(
    ("norm", "expected"), [(-1, [3, -4]), (0, [24570, -32760]), (1, [3 / 7, -4 / 7]), (2, [0.6, -0.8])]
)
def test_a_vector_has_the_length_that_was_asked_for(norm, expected):
    assert normalized(np.array([3, -4], np.float32), norm) == pytest.approx(expected)


def test_zeros_have_no_length():
    assert normalized(np.zeros(2, np.float32), 2).tolist() == [0, 0]


def test_a_reranker_has_one_number_for_a_text(ranker):
    encoder = VectorEncoder(LoadEncoder(ranker, 1))
    assert encoder.about.ranks
    assert [len(each) for each in vectors(encoder, tokens(5), tokens(7))] == [1, 1]
    encoder.close()


@pytest.mark.parametrize(
    "texts", [[], [array("i")], [tokens(33)], [tokens(1)] * 65, [array("i", [10**6])], [array("i", [-1])]]
)
def test_what_cannot_be_computed_is_refused_before_native_code_sees_it(encoder, texts):
    with pytest.raises(ValueError, match="batch"):
        vectors(encoder, *texts)


def test_a_text_model_is_refused(tiny_model):
    with pytest.raises(ModelLoadError, match="is a text model"):
        VectorEncoder(LoadEncoder(tiny_model("llama"), 1))


@pytest.mark.models
def test_a_public_model_computes_what_its_makers_published():
    texts = ["", "hello world", "The quick brown fox. " * 40, "Grüße, 日本語のテキスト 🎉", "x " * 300]
    vocabulary = Vocabulary.load(minilm(), writes_text=False)
    encoded = [vocabulary.encode(text, add_special=True, parse_special=True) for text in texts]
    published = weights(minilm_folder())
    encoder = VectorEncoder(LoadEncoder(minilm(), 1))
    for text in encoded:
        (found,) = vectors(encoder, text)
        assert found @ reference_vector(published, text.tolist()) > 0.9999
    encoder.close()
