"""Files of models for vectors are checked before anything is loaded."""

import pytest
from pydantic import ValidationError

from lead.settings.lead_settings import LeadSettings
from lead.settings.vector_models import COMPUTING_BYTES, VectorModelOptions
from shared.errors import ConfigError
from shared.llama.placement import BESIDE_GPU, FIRST_GPU
from tests.minilm import tiny_bert


@pytest.fixture
def files(tmp_path, tiny_model):
    return {
        "text": tiny_model("llama"),
        "embedding": tiny_bert(tmp_path / "embedding.gguf", ["a"]),
        "ranker": tiny_bert(tmp_path / "ranker.gguf", ["a"], ranks=True),
        "none": tmp_path / "none.gguf",
    }


@pytest.mark.parametrize(
    ("option", "file", "message"),
    [
        ("embedding_model", "text", "is a text model, not an embedding model"),
        ("embedding_model", "ranker", "is a reranker. Use --rerank-model"),
        ("embedding_model", "none", "does not exist"),
        ("rerank_model", "text", "is not a reranker"),
        ("rerank_model", "embedding", "is not a reranker"),
        ("rerank_model", "none", "does not exist"),
    ],
)
def test_a_file_of_another_kind_is_refused_in_a_sentence(files, option, file, message):
    with pytest.raises(ConfigError, match=message):
        VectorModelOptions(**{option: files[file]}).located()


def test_files_of_the_right_kinds_are_taken(files):
    options = VectorModelOptions(embedding_model=files["embedding"], rerank_model=files["ranker"])
    assert options.located() == options


def test_vectors_are_made_by_one_model(files):
    with pytest.raises(ValidationError, match="cannot be combined with --embedding-model"):
        VectorModelOptions(embedding_model=files["embedding"], serve_embeddings=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs --model"),
        ({"models_dir": "."}, "folder"),
    ],
)
def test_a_model_makes_vectors_of_its_own_only_where_there_is_one(options, message):
    with pytest.raises(ValidationError, match=message):
        LeadSettings.from_options(serve_embeddings=True, **options)


def test_their_memory_is_left_to_them(files):
    settings = LeadSettings.from_options(model=files["text"], rerank_model=files["ranker"])
    n_bytes = files["ranker"].stat().st_size + COMPUTING_BYTES
    assert settings.load_command(files["text"]).taken == {"CPU": n_bytes}
    assert LeadSettings.from_options(model=files["text"]).load_command(files["text"]).taken == {}


def test_weights_that_the_engine_has_elsewhere_are_read_again(files):
    options = {"model": files["text"], "serve_embeddings": True}
    weights = files["text"].stat().st_size

    def memory(**more):
        return LeadSettings.from_options(**options, **more).beside_bytes

    assert memory(n_gpu_layers=0) == {"CPU": COMPUTING_BYTES}
    assert memory() == memory(n_gpu_layers=9) == {"CPU": COMPUTING_BYTES, BESIDE_GPU: weights}
    assert memory(n_gpu_layers=0, load_mode="none") == {"CPU": COMPUTING_BYTES + weights}
    assert memory(embedding_gpu_layers=-1) == {FIRST_GPU: COMPUTING_BYTES + weights}
