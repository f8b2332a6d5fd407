"""The models in a folder, as llama-server's --models-dir, and in the hub's cache."""

import os
import shutil

import pytest

from lead.router.catalog import FOLDER, HUB, find_models
from lead.router.hub_cache import CachedModel
from shared.errors import ConfigError
from shared.model_files.builtin import builtin_draft
from tests.minilm import tiny_bert


@pytest.fixture(autouse=True)
def cached(monkeypatch):
    """The models in the hub's cache."""
    models = []
    monkeypatch.setattr("lead.router.catalog.cached_models", lambda _hub: models)
    return models


@pytest.fixture
def folder(tmp_path):
    """Writes copies of a model under these names."""

    def write(*names):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            shutil.copy(builtin_draft(), path)
        return tmp_path

    return write


def names(folder):
    return [name for name, model in find_models(folder).items() if model.origin == FOLDER]


@pytest.mark.parametrize(
    ("files", "called"),
    [
        (("b-Q4_0.gguf", "a/model.gguf", "a/mmproj-F16.gguf"), ["a", "b-Q4_0"]),
        (("a/x.gguf", "a/y.gguf"), ["x", "y"]),
    ],
    ids=["a folder with one model by its own name", "several of a folder by their files'"],
)
def test_a_model_is_called(folder, files, called):
    assert names(folder(*files)) == called


def test_a_model_in_parts_is_one_model(folder):
    parts = [f"big/big-0000{n}-of-00002.gguf" for n in (1, 2)]
    model = find_models(folder(*parts))["big"]
    assert model.path.name == "big-00001-of-00002.gguf"
    assert model.n_bytes == 2 * builtin_draft().stat().st_size


def test_what_is_no_model_is_left_out(folder):
    path = folder("good.gguf", "big/big-00001-of-00002.gguf")
    (path / "notes.txt").write_text("x")
    os.mkfifo(path / "pipe.gguf")  # is not waited for
    assert names(path) == ["good"]


def test_the_hubs_cache_is_listed_and_the_folder_goes_first(folder, cached):
    path = folder("here.gguf")
    cached.append(CachedModel("a/b", "b-Q8_0.gguf", path / "here.gguf"))
    models = find_models(path)
    assert models["a/b:Q8_0"].origin == HUB
    assert models["here"].origin == FOLDER


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"--models-dir: .*cannot be read"):
        find_models(tmp_path / "none")


def test_models_that_make_vectors_are_models_too(tmp_path):
    tiny_bert(tmp_path / "bert.gguf", ["a"])
    assert "bert" in find_models(tmp_path)
