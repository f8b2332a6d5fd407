"""Models of both kinds in files, and their logits in llama.cpp."""

import pytest

from shared.convert.converted_file import read_conversion
from shared.llama.model import Model
from shared.llama.span import Span
from shared.memory.plan_memory import plan_memory
from shared.settings.model_options import ModelOptions
from tests.shared.convert import gpt2_reference, llama2c_reference

PIECES, SCORES = llama2c_reference.words()


@pytest.fixture(autouse=True)
def conversion_cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    folder = tmp_path / "cache" / "llama-duo"
    monkeypatch.setattr("shared.convert.converted_file.user_cache_path", lambda _name: folder)
    return folder


@pytest.fixture
def tokenizer(tmp_path):
    """A tokenizer.bin."""
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(llama2c_reference.tokenizer_bin(PIECES, SCORES))
    return path


@pytest.fixture
def checkpoint(tokenizer):
    """A small checkpoint of version 1, next to its tokenizer."""
    path = tokenizer.with_name("stories.bin")
    path.write_bytes(llama2c_reference.version_1(small_llama()))
    return path


@pytest.fixture
def gpt2_folder(tmp_path):
    """A small GPT-2."""
    return gpt2_reference.write_folder(tmp_path / "gpt2", *small_gpt2())


def small_llama(seed=1, **changes):
    shape = {"width": 48, "n_hidden": 100, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2} | changes
    return llama2c_reference.random_llama(seed, n_vocab=len(PIECES), **shape)


def small_gpt2(seed=1, **changes):
    n_vocab = len(gpt2_reference.vocabulary()[0]) + 5
    shape = {"width": 60, "n_heads": 5, "n_layers": 2, "n_vocab": n_vocab} | changes
    return gpt2_reference.random_gpt2(seed, **shape)


def load(gguf):
    options = {"cache_type_k": "f32", "cache_type_v": "f32", "flash_attn": "off", "n_gpu_layers": 0}
    return Model(plan_memory(gguf, ModelOptions(threads=1, parallel=1, **options)))


def converted(source, stored_as="auto", tokenizer=None):
    """The source as a model in llama.cpp."""
    path = source.with_name(f"{source.name}-{stored_as}.gguf")
    read_conversion(source, tokenizer).file(stored_as).write(path)
    return load(path)


def logits(model, tokens):
    """The logits after each token of a text that is read at once."""
    (rows,) = model.decode([Span(0, 0, tokens, len(tokens))])
    model.trim(0, 0)
    return rows.copy()
