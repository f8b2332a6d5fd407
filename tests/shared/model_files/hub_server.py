"""A stand-in for the Hugging Face hub: it answers huggingface_hub's requests to list and download files."""

import hashlib
import json
from urllib.parse import unquote, urlsplit

import pytest

from shared.model_files.hub import Hub, HubModel
from tests.http_server import HttpServer, QuietHandler

COMMIT = "a" * 40


class HubServer(HttpServer):
    """Serves `repositories` on loopback: bytes by name and file. `private` and `gated` need the token."""

    token = "hf_secret"  # noqa: S105 - of the stand-in

    def __init__(self):
        super().__init__(_Handler)
        self.repositories = {}
        self.private = set()
        self.gated = set()
        self.requests = []  # (method, path)
        self.looked_at = []  # files of which only the beginning was asked for
        self.breaks_off_after = 0  # bytes of the next file; 0: it is whole
        self.ranges = []  # of the downloads that began in the middle

    @property
    def downloads(self):
        paths = [path for method, path in self.requests if method == "GET" and "/resolve/" in path]
        names = [path.rpartition("/")[2] for path in paths]
        for name in self.looked_at:
            names.remove(name)
        return names

    def refusal(self, repository, authorization):
        """The hub's refusal as (status, code); None if it grants access."""
        if authorization == f"Bearer {self.token}":
            return None if repository in self.repositories else (404, "RepoNotFound")
        if repository in self.gated:
            return 403, "GatedRepo"
        hidden = repository in self.private or repository not in self.repositories
        return (401, "RepoNotFound") if hidden else None


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"

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
            status, begin = 206, int(wanted.removeprefix("bytes=").partition("-")[0])
            if begin:
                self.server.ranges.append(wanted)
            else:
                self.server.looked_at.append(self.path.rpartition("/")[2])
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


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    with HubServer() as server:
        server.repositories[REPOSITORY] = {name: f"content of {name}".encode() for name in PLAIN}
        yield server


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def fetch(server, cache, name=REPOSITORY, *, file=None, with_projector=False, **options):
    hub = Hub(endpoint=server.url, cache=cache, **options)
    return hub.fetch(HubModel.parse(name, file), with_projector=with_projector)
