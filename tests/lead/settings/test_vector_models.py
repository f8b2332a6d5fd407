"""Files for vectors are checked before anything is loaded."""

import pytest

from lead.settings.vector_models import VectorModelOptions
from shared.errors import ConfigError
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
        ("embedding_model", "text", "is no embedding model: it continues texts"),
        ("embedding_model", "ranker", "is a reranker: name it with --rerank-model"),
        ("embedding_model", "none", "is not there"),
        ("rerank_model", "text", "is no reranker"),
        ("rerank_model", "embedding", "is no reranker"),
        ("rerank_model", "none", "is not there"),
    ],
)
def test_a_file_of_another_kind_is_refused_in_a_sentence(files, option, file, message):
    with pytest.raises(ConfigError, match=message):
        VectorModelOptions(**{option: files[file]}).located()


def test_files_of_the_right_kinds_are_taken(files):
    options = VectorModelOptions(embedding_model=files["embedding"], rerank_model=files["ranker"])
    assert options.located() == options
