"""Models of the Hugging Face hub, with a stand-in that lists and serves files."""

import contextlib
import os
import socket
import sys

import pytest
from gguf import GGUFWriter

from shared.errors import ConfigError
from shared.model_files.hub import Hub, HubModel
from tests.python_runs import run_python
from tests.shared.model_files.hub_server import PLAIN, REPOSITORY, SPLIT, fetch
from tests.tiny_models import write_and_close


def choose(names, quantization=None, file=None):
    return HubModel(REPOSITORY, quantization, file).choose(names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b", HubModel("a/b")),
        ("a/b:Q8_0", HubModel("a/b", "Q8_0")),
        ("unsloth/Qwen2.5-7B_x-GGUF:IQ4_XS", HubModel("unsloth/Qwen2.5-7B_x-GGUF", "IQ4_XS")),
    ],
)
def test_a_name_has_a_repository_and_perhaps_a_quantization(text, expected):
    assert HubModel.parse(text) == expected


@pytest.mark.parametrize("text", ["", "toy", "a/b/c", "a/b:", "a/b:x:y", "../b/c", "https://a/b"])
def test_a_name_that_is_none_is_said(text):
    with pytest.raises(ValueError, match="write it as USER/REPO"):
        HubModel.parse(text)


CHOICES = {
    "Q4_K_M is preferred": ((PLAIN,), ["toy-Q4_K_M.gguf"]),
    "then Q8_0": ((["toy-BF16.gguf", "toy-Q8_0.gguf"],), ["toy-Q8_0.gguf"]),
    "then the first model": ((["mmproj-toy.gguf", "toy-Q5_0.gguf", "toy-BF16.gguf"],), ["toy-BF16.gguf"]),
    "a quantization by name": ((PLAIN, "Q4_0"), ["toy-Q4_0.gguf"]),
    "in any case": ((PLAIN, "q4_0"), ["toy-Q4_0.gguf"]),
    "not part of another": ((["toy-Q4_K_M.gguf", "toy-Q4_K.gguf"], "Q4_K"), ["toy-Q4_K.gguf"]),
    "a file by name": ((PLAIN, "Q8_0", "toy-Q4_0.gguf"), ["toy-Q4_0.gguf"]),
    "all parts of a model": ((SPLIT, "Q8_0"), SPLIT[1:]),
}


@pytest.mark.parametrize(("asked", "chosen"), CHOICES.values(), ids=CHOICES)
def test_a_model_is_chosen_from_the_files_of_a_repository(asked, chosen):
    assert choose(*asked) == chosen


REFUSALS = {
    "a part is missing": (([*SPLIT[:2], SPLIT[3]], "Q8_0"), r"lacks Q8_0/toy-Q8_0-00002-of-00003\.gguf"),
    "no such quantization": ((PLAIN, "Q2_K"), r"no quantization Q2_K\. Available: toy-Q4_0.gguf, toy-Q4_K_M"),
    "no such file": ((PLAIN, None, "toy.gguf"), "no toy.gguf. Available: toy-Q4_0.gguf"),
    "no model": ((["README.md", "mmproj-toy.gguf", "model.safetensors"],), "has no GGUF models"),
}


@pytest.mark.parametrize(("asked", "message"), REFUSALS.values(), ids=REFUSALS)
def test_what_a_repository_lacks_is_answered_with_what_it_has(asked, message):
    with pytest.raises(ConfigError, match=message):
        choose(*asked)


@pytest.fixture
def unreachable():
    """An address at which no server answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"http://127.0.0.1:{port}"


def test_a_model_is_downloaded_under_its_name(server, cache):
    path = fetch(server, cache)
    assert (path.name, path.read_bytes()) == ("toy-Q4_K_M.gguf", b"content of toy-Q4_K_M.gguf")
    assert server.downloads == ["toy-Q4_K_M.gguf"]


def test_the_projector_of_a_model_comes_with_it_where_that_is_wanted(server, cache):
    path = fetch(server, cache, with_projector=True)
    assert sorted(server.downloads) == ["mmproj-toy-Q8_0.gguf", "toy-Q4_K_M.gguf"]
    assert path.name == "toy-Q4_K_M.gguf"
    assert path.with_name("mmproj-toy-Q8_0.gguf").is_file()


def test_a_projector_of_no_use_is_not_downloaded(server, cache, tmp_path, caplog):
    writer = GGUFWriter(tmp_path / "mmproj.gguf", "clip")
    writer.add_string("clip.projector_type", "qwen3vl_merger")
    write_and_close(writer)
    server.repositories[REPOSITORY]["mmproj-toy-Q8_0.gguf"] = (tmp_path / "mmproj.gguf").read_bytes()
    fetch(server, cache, with_projector=True)
    assert server.downloads == ["toy-Q4_K_M.gguf"]
    assert (
        "runs without images: mmproj-toy-Q8_0.gguf is of the unsupported kind 'qwen3vl_merger'" in caplog.text
    )


def test_a_model_that_is_in_the_cache_is_not_downloaded_again(server, cache):
    first = fetch(server, cache)
    assert fetch(server, cache) == first
    assert server.downloads == ["toy-Q4_K_M.gguf"]


def test_all_parts_lie_beside_the_first(server, cache):
    server.repositories[REPOSITORY] = {name: name.encode() for name in SPLIT}
    path = fetch(server, cache, f"{REPOSITORY}:Q8_0")
    assert path.name == "toy-Q8_0-00001-of-00003.gguf"
    assert sorted(each.name for each in path.parent.iterdir()) == [
        name.removeprefix("Q8_0/") for name in SPLIT[1:]
    ]


def test_without_a_connection_the_cache_is_used(server, cache, unreachable, caplog):
    path = fetch(server, cache)
    assert Hub(endpoint=unreachable, cache=cache).fetch(HubModel(REPOSITORY)) == path
    assert "the hub does not answer" in caplog.text


def test_offline_no_request_is_sent(server, cache):
    path = fetch(server, cache)
    server.requests.clear()
    assert fetch(server, cache, offline=True) == path
    assert server.requests == []


@pytest.mark.parametrize("name", [f"{REPOSITORY}:Q8_0", "someone/else-GGUF"])
def test_what_is_not_in_the_cache_needs_a_connection(server, cache, name):
    fetch(server, cache)
    with pytest.raises(ConfigError, match="is not in the hub's cache, and downloads are disabled"):
        fetch(server, cache, name, offline=True)


def test_a_model_of_which_a_part_is_not_in_the_cache_is_not_there(server, cache):
    server.repositories[REPOSITORY] = {name: name.encode() for name in SPLIT}
    path = fetch(server, cache, f"{REPOSITORY}:Q8_0")
    path.with_name("toy-Q8_0-00002-of-00003.gguf").unlink()
    with pytest.raises(ConfigError, match="is not in the hub's cache"):
        fetch(server, cache, f"{REPOSITORY}:Q8_0", offline=True)


def test_a_repository_that_is_not_there_is_said(server, cache):
    with pytest.raises(ConfigError, match="the hub has no repository someone/else-GGUF"):
        fetch(server, cache, "someone/else-GGUF")


def test_a_private_repository_opens_with_the_token(server, cache):
    server.private.add(REPOSITORY)
    with pytest.raises(ConfigError, match="For a private repository, set HF_TOKEN"):
        fetch(server, cache)
    assert fetch(server, cache, token=server.token).name == "toy-Q4_K_M.gguf"


def test_a_wrong_token_is_not_repeated(server, cache):
    server.private.add(REPOSITORY)
    with pytest.raises(ConfigError) as raised:
        fetch(server, cache, token="hf_wrong_secret")  # noqa: S106 - is to be wrong
    assert "hf_wrong" not in str(raised.value)


def test_a_gated_repository_says_what_to_do(server, cache):
    server.gated.add(REPOSITORY)
    with pytest.raises(ConfigError, match="Accept its terms"):
        fetch(server, cache)


def test_without_the_extra_the_command_to_install_it_is_said(monkeypatch, cache):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match=r"pip install 'llama-duo\[hub\]'"):
        Hub(cache=cache).fetch(HubModel(REPOSITORY))


def test_the_hubs_own_variables_count(server, cache):
    """huggingface_hub reads the variables when it is imported, so it runs in its own process."""
    script = f"from shared.model_files.hub import *; print(Hub().fetch(HubModel({REPOSITORY!r})))"
    own = {"HF_ENDPOINT": server.url, "HF_HUB_CACHE": str(cache), "HF_TOKEN": server.token}
    server.private.add(REPOSITORY)
    done = run_python("-c", script, env=os.environ | own, check=True)
    assert done.stdout.startswith(f"{cache}/models--someone--toy-GGUF/snapshots/")


def test_a_download_that_broke_off_goes_on_where_it_stopped(server, cache, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1 << 14)
    content = bytes(range(256)) * 1000
    server.repositories[REPOSITORY] = {"toy-Q8_0.gguf": content}
    server.breaks_off_after = 100_000
    for _ in range(2):  # newer versions of huggingface_hub try again by themselves
        with contextlib.suppress(ConfigError):
            assert fetch(server, cache).read_bytes() == content
            break
    else:
        pytest.fail("it was not downloaded")
    (begun,) = server.ranges
    assert 0 < int(begun.removeprefix("bytes=").partition("-")[0]) <= 100_000
