import pytest

from tests.minilm import tiny_bert

WORDS = [
    *"abcdefghijklmnopqrstuvwxyz0123456789",
    *(f"##{each}" for each in "abcdefghij"),
    "hello",
    "world",
    "fox",
]


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """A tiny embedding model that reads 32 tokens."""
    return tiny_bert(tmp_path_factory.mktemp("bert") / "bert.gguf", WORDS)


@pytest.fixture(scope="session")
def ranker(tmp_path_factory):
    return tiny_bert(tmp_path_factory.mktemp("bert") / "ranker.gguf", WORDS, ranks=True)
