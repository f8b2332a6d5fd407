from pathlib import Path

import httpx
import pytest

from shared.model_files.hub import Hub
from shared.model_files.near_models import no_such_model

ON_HUB = httpx.Response(
    200, json=[{"id": "ggml-org/Qwen3-8B-GGUF"}], request=httpx.Request("GET", "http://hub")
)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub whose cache is empty. `hub.asked` are the searches."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    asked = []

    def get(_url, params, **_):
        asked.append(params["search"])
        return ON_HUB

    monkeypatch.setattr("httpx.get", get)
    return asked, Hub(cache=tmp_path / "cache", endpoint="http://hub")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_models_of_the_folder_and_of_the_hub_are_offered(hub, folder):
    asked, hub = hub
    for name in ("Qwen3-8B-Q4_K_M.gguf", "gemma.gguf", "qwen3.txt"):
        (folder / name).touch()
    assert no_such_model(Path("qwen3:8b"), hub) == (
        "qwen3:8b does not exist. Check the path; in its folder: Qwen3-8B-Q4_K_M.gguf; on the hub: "
        "-hf ggml-org/Qwen3-8B-GGUF"
    )
    assert asked == ["qwen3 8b"]


def test_a_misspelled_file_is_found(hub, folder):
    (folder / "gemma.gguf").touch()
    assert "in its folder: gemma.gguf" in no_such_model(Path("gema.gguf"), hub[1])


def test_what_looks_like_a_repository_may_be_one(hub):
    assert no_such_model(Path("user/repo:Q8_0"), hub[1]).endswith("on the hub: -hf user/repo:Q8_0")


@pytest.mark.parametrize("path", ["/srv/qwen3.gguf", "models/qwen3.gguf", "a/b/qwen3"])
def test_whoever_names_a_folder_means_no_model_of_the_hub(hub, path):
    assert "on the hub: " not in no_such_model(Path(path), hub[1])
    assert hub[0] == []


@pytest.mark.parametrize("failure", [httpx.ConnectError("no network"), ValueError("no JSON")])
def test_without_the_hub_the_sentence_says_how_to_get_a_model(hub, monkeypatch, failure):
    def get(*_, **__):
        raise failure

    monkeypatch.setattr("httpx.get", get)
    said = no_such_model(Path("qwen3"), hub[1])
    assert said == (
        "qwen3 does not exist. Check the path; -hf USER/REPO:QUANT downloads a model from Hugging Face"
    )


def test_offline_the_hub_is_not_asked(hub, tmp_path):
    no_such_model(Path("qwen3"), Hub(cache=tmp_path / "cache", offline=True))
    assert hub[0] == []
