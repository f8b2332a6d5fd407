"""A model's name that is no file is answered with the models that may be meant."""

import httpx
import pytest

from shared.model_files.hub import Hub
from shared.model_files.near_models import no_such_model

ON_HUB = httpx.Response(
    200, json=[{"id": "ggml-org/Qwen3-8B-GGUF"}], request=httpx.Request("GET", "http://hub")
)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Its cache is empty; `hub.asked` are the searches."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    asked = []

    def get(_url, params, **_):
        asked.append(params["search"])
        return ON_HUB

    monkeypatch.setattr("httpx.get", get)
    return asked, Hub(cache=tmp_path / "cache", endpoint="http://hub")


def test_models_of_the_folder_and_of_the_hub_are_offered(hub, tmp_path):
    asked, hub = hub
    for name in ("Qwen3-8B-Q4_K_M.gguf", "gemma.gguf", "qwen3.txt"):
        (tmp_path / name).touch()
    said = no_such_model(tmp_path / "qwen3:8b", hub)
    assert said == (
        f"the file {tmp_path}/qwen3:8b; in its folder: {tmp_path}/Qwen3-8B-Q4_K_M.gguf; on the hub: "
        "-hf ggml-org/Qwen3-8B-GGUF"
    )
    assert asked == ["qwen3 8b"]


def test_a_misspelled_file_is_found(hub, tmp_path, monkeypatch):
    (tmp_path / "gemma.gguf").touch()
    monkeypatch.chdir(tmp_path)
    assert "in its folder: gemma.gguf" in no_such_model(tmp_path / "gema.gguf", hub[1]).replace(
        f"{tmp_path}/", ""
    )


@pytest.mark.parametrize("failure", [httpx.ConnectError("no network"), ValueError("no JSON")])
def test_without_the_hub_the_sentence_says_how_to_get_a_model(hub, tmp_path, monkeypatch, failure):
    def get(*_, **__):
        raise failure

    monkeypatch.setattr("httpx.get", get)
    said = no_such_model(tmp_path / "qwen3", hub[1])
    assert (
        said == f"the file {tmp_path}/qwen3; -hf USER/REPO:QUANT downloads a model from the Hugging Face hub"
    )


def test_offline_the_hub_is_not_asked(hub, tmp_path):
    no_such_model(tmp_path / "qwen3", Hub(cache=tmp_path / "cache", offline=True))
    assert hub[0] == []
