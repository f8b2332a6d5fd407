import hashlib

import httpx
import pytest

from back.translation import vocabulary_download as module
from back.translation.vocabulary_download import lead_vocabulary
from shared.errors import ConfigError
from shared.llama.gguf_metadata import content_digest, write_vocabulary_file
from shared.llama.vocabulary import Vocabulary
from shared.model_files.builtin import builtin_target


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "user_cache_path", lambda _name: tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "vocabulary.gguf"
    write_vocabulary_file(builtin_target(), path)
    return path.read_bytes(), content_digest(path)


def fingerprint():
    return Vocabulary.load(builtin_target()).identify().fingerprint


class Lead:
    """A lead that answers with a vocabulary and counts how often."""

    def __init__(self, data, digest, status=200):
        self.data, self.digest, self.status = data, digest, status
        self.n_sent = 0
        self.requests = []

    def __call__(self, request):
        self.requests.append(request)
        etag = f'"{self.digest}"'
        if etag in request.headers.get("If-None-Match", ""):
            return httpx.Response(304, headers={"ETag": etag})
        self.n_sent += 1
        return httpx.Response(self.status, headers={"ETag": etag}, content=self.data)


def download(lead, key=None):
    return lead_vocabulary("http://lead", key, None, httpx.MockTransport(lead))


@pytest.mark.usefixtures("cache")
def test_it_is_downloaded_once(served):
    lead = Lead(*served)
    download(lead)
    assert download(lead).identify().fingerprint == fingerprint()
    assert lead.n_sent == 1


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data.replace(b"gpt2", b"gpt3"), lambda _: b""]
)
def test_a_damaged_copy_is_downloaded_anew(served, cache, damage):
    lead = Lead(*served)
    download(lead)
    (copy,) = cache.rglob("*.gguf")
    copy.write_bytes(damage(served[0]))
    assert download(lead).identify().fingerprint == fingerprint()
    assert (lead.n_sent, copy.read_bytes()) == (2, served[0])


@pytest.mark.usefixtures("cache")
def test_the_key_is_shown(served):
    lead = Lead(*served)
    download(lead, "secret")
    assert lead.requests[0].headers["Authorization"] == "Bearer secret"


def test_a_file_that_is_damaged_on_the_way_is_not_believed(served, cache):
    with pytest.raises(ConfigError, match="damaged"):
        download(Lead(served[0], "f" * 32))
    assert not list(cache.rglob("*.gguf"))


def test_junk_is_not_kept(cache):
    with pytest.raises(ConfigError, match="cannot be read"):
        download(Lead(b"junk", hashlib.sha256(b"junk").hexdigest()[:32]))
    assert not list(cache.rglob("*.gguf"))


def test_an_endless_file_is_not_kept(served, cache, monkeypatch):
    monkeypatch.setattr(module, "_MAX_BYTES", 1000)
    with pytest.raises(ConfigError, match="more than 1000 bytes"):
        download(Lead(*served))
    assert not [path for path in cache.rglob("*") if path.is_file()]


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", ["../../etc/passwd", "", "a/b"])
def test_a_name_that_is_no_digest_is_refused(served, name):
    with pytest.raises(ConfigError, match="refuses to send"):
        download(Lead(served[0], name))


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("status", "error", "words"),
    [(404, ConfigError, "HTTP 404"), (503, ConnectionError, "loading")],
    ids=["an older one", "one that is loading, which may be asked again"],
)
def test_a_lead_that_does_not_answer_with_it_is_explained(served, status, error, words):
    with pytest.raises(error, match=words):
        download(Lead(*served, status=status))


@pytest.mark.usefixtures("cache")
def test_a_lead_that_is_away_may_be_asked_again():
    def fail(request):
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(ConnectionError, match="cannot be downloaded"):
        download(fail)
