"""Models of the Hugging Face hub, with a stand-in: what huggingface_hub asks to list and download files."""

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest

from shared.errors import ConfigError
from shared.models.hub import Hub, HubModel

COMMIT = "a" * 40


class HubServer(ThreadingHTTPServer):
    """Serves `repositories`, {name: {file: bytes}}, on loopback; `private`, `gated` ones need the token."""

    token = "hf_secret"  # noqa: S105 - of the stand-in

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = {}
        self.private = set()
        self.gated = set()
        self.requests = []  # (method, path)
        self.breaks_off_after = 0  # bytes of the next file; 0: it is whole
        self.ranges = []  # of the downloads that began in the middle
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self):
        host, port = self.server_address
        return f"http://{host}:{port}"

    @property
    def downloads(self):
        paths = [path for method, path in self.requests if method == "GET" and "/resolve/" in path]
        return [path.rpartition("/")[2] for path in paths]

    def close(self):
        self.shutdown()
        self._thread.join()
        self.server_close()

    def refusal(self, repository, authorization):
        """The hub's status and code, or None."""
        if authorization == f"Bearer {self.token}":
            return None if repository in self.repositories else (404, "RepoNotFound")
        if repository in self.gated:
            return 403, "GatedRepo"
        hidden = repository in self.private or repository not in self.repositories
        return (401, "RepoNotFound") if hidden else None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append((self.command, path))
        parts = path.strip("/").split("/")
        repository = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        refusal = self.server.refusal(repository, self.headers.get("Authorization"))
        if refusal:
            self.answer(refusal[0], b"{}", {"X-Error-Code": refusal[1]})
        elif parts[0] == "api":
            self.describe(repository, self.server.repositories[repository], whole="tree" in parts)
        else:
            content = self.server.repositories[repository]["/".join(parts[4:])]
            etag = hashlib.sha256(content).hexdigest()
            self.send_file(content, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})

    def send_file(self, content, headers):
        status, begin = 200, 0
        if wanted := self.headers.get("Range"):
            self.server.ranges.append(wanted)
            status, begin = 206, int(wanted.removeprefix("bytes=").partition("-")[0])
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        n_sent = self.server.breaks_off_after if self.command == "GET" else 0
        if n_sent:
            self.server.breaks_off_after = 0
            self.close_connection = True
        self.answer(status, content[begin:], headers, n_sent=n_sent)

    def describe(self, repository, files, *, whole):
        tree = [_entry(name, content) for name, content in files.items()]
        short = {"id": repository, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
        body = json.dumps(tree if whole else short).encode()
        self.answer(200, body, {"Content-Type": "application/json"})

    def answer(self, status, body, headers, n_sent=0):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[:n_sent] if n_sent else body)


def _entry(name, content):
    git = hashlib.sha1(content).hexdigest()  # noqa: S324 - git's
    return {"type": "file", "path": name, "size": len(content), "oid": git}


REPOSITORY = "someone/toy-GGUF"
PLAIN = ["README.md", "toy-Q4_0.gguf", "toy-Q4_K_M.gguf", "toy-Q8_0.gguf", "mmproj-toy-Q8_0.gguf"]
SPLIT = ["toy-Q4_0.gguf", *(f"Q8_0/toy-Q8_0-{n:05d}-of-00003.gguf" for n in (1, 2, 3))]


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
    with pytest.raises(ValueError, match="write it as in"):
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
    "no such quantization": ((PLAIN, "Q2_K"), "no quantization Q2_K: there are toy-Q4_0.gguf, toy-Q4_K_M"),
    "no such file": ((PLAIN, None, "toy.gguf"), "no toy.gguf: there are toy-Q4_0.gguf"),
    "no model": ((["README.md", "mmproj-toy.gguf", "model.safetensors"],), "has no GGUF models"),
}


@pytest.mark.parametrize(("asked", "message"), REFUSALS.values(), ids=REFUSALS)
def test_what_a_repository_lacks_is_answered_with_what_it_has(asked, message):
    with pytest.raises(ConfigError, match=message):
        choose(*asked)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    server = HubServer()
    server.repositories[REPOSITORY] = {name: f"content of {name}".encode() for name in PLAIN}
    yield server
    server.close()


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def unreachable():
    """An address at which no server answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"http://127.0.0.1:{port}"


def fetch(server, cache, name=REPOSITORY, *, file=None, **options):
    return Hub(endpoint=server.url, cache=cache, **options).fetch(HubModel.parse(name, file))


def test_a_model_is_downloaded_under_its_name(server, cache):
    path = fetch(server, cache)
    assert (path.name, path.read_bytes()) == ("toy-Q4_K_M.gguf", b"content of toy-Q4_K_M.gguf")
    assert server.downloads == ["toy-Q4_K_M.gguf"]


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
    with pytest.raises(ConfigError, match="there is no repository someone/else-GGUF on the hub"):
        fetch(server, cache, "someone/else-GGUF")


def test_a_private_repository_opens_with_the_token(server, cache):
    server.private.add(REPOSITORY)
    with pytest.raises(ConfigError, match="for a private one set HF_TOKEN"):
        fetch(server, cache)
    assert fetch(server, cache, token=server.token).name == "toy-Q4_K_M.gguf"


def test_a_wrong_token_is_not_repeated(server, cache):
    server.private.add(REPOSITORY)
    with pytest.raises(ConfigError) as raised:
        fetch(server, cache, token="hf_wrong_secret")  # noqa: S106 - is to be wrong
    assert "hf_wrong" not in str(raised.value)


def test_a_gated_repository_says_what_to_do(server, cache):
    server.gated.add(REPOSITORY)
    with pytest.raises(ConfigError, match="requires accepting its terms"):
        fetch(server, cache)


def test_without_the_extra_the_command_to_install_it_is_said(monkeypatch, cache):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match=r"pip install 'llama-duo\[hub\]'"):
        Hub(cache=cache).fetch(HubModel(REPOSITORY))


def test_the_hubs_own_variables_count(server, cache):
    """In a process of its own, because huggingface_hub reads them when it is imported."""
    script = f"from shared.models.hub import *; print(Hub().fetch(HubModel({REPOSITORY!r})))"
    environment = {
        **os.environ,
        "HF_ENDPOINT": server.url,
        "HF_HUB_CACHE": str(cache),
        "HF_TOKEN": server.token,
    }
    server.private.add(REPOSITORY)
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
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


def cached(cache):
    return {model.name: model for model in Hub(cache=cache).cached()}


def test_the_cache_is_listed_by_the_names_that_a_request_for_a_model_has(server, cache):
    server.repositories[REPOSITORY] |= {"toy.gguf": b"x", **{name: name.encode() for name in SPLIT[1:]}}
    for file in ("toy-Q4_K_M.gguf", "toy.gguf", SPLIT[1]):
        fetch(server, cache, file=file)
    models = cached(cache)
    assert set(models) == {f"{REPOSITORY}:{name}" for name in ("Q4_K_M", "toy", "Q8_0")}
    assert models[f"{REPOSITORY}:Q8_0"].path.name == "toy-Q8_0-00001-of-00003.gguf"


def test_without_a_cache_or_the_extra_nothing_is_listed(monkeypatch, cache):
    assert cached(cache) == {}
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert cached(cache) == {}


def test_a_model_is_deleted_with_all_its_parts_and_others_stay(server, cache):
    server.repositories[REPOSITORY] = {name: name.encode() for name in SPLIT}
    fetch(server, cache, f"{REPOSITORY}:Q8_0")
    kept = fetch(server, cache, f"{REPOSITORY}:Q4_0")
    Hub(cache=cache).remove(cached(cache)[f"{REPOSITORY}:Q8_0"].path)
    assert set(cached(cache)) == {f"{REPOSITORY}:Q4_0"}
    assert kept.read_bytes() == b"toy-Q4_0.gguf"
    blobs = [path for path in cache.rglob("blobs/*") if path.is_file()]
    assert len(blobs) == 1


def test_the_last_model_of_a_repository_takes_that_with_it(server, cache):
    fetch(server, cache)
    Hub(cache=cache).remove(cached(cache)[f"{REPOSITORY}:Q4_K_M"].path)
    assert cached(cache) == {}
    assert not list(cache.glob("models--*"))
