import httpx
import pytest

from lead.translation import vocabulary_offer
from shared.llama.vocabulary import Vocabulary
from tests.lead.serving import app_served


@pytest.fixture
async def downloads(lead, tmp_path, monkeypatch):
    """A client of a lead that offers its vocabulary."""
    monkeypatch.setattr(vocabulary_offer, "user_cache_path", lambda _name: tmp_path)
    lead.app.state.vocabulary_offer = vocabulary_offer.VocabularyOffer(lead.vocabulary.info.path)
    async with app_served(lead.app) as (port, _):
        url = f"http://127.0.0.1:{port}/v1/speculation"
        async with httpx.AsyncClient(base_url=url) as client:
            yield client


async def test_a_back_can_download_the_vocabulary(lead, downloads, tmp_path):
    answer = await downloads.get("/vocabulary", headers={"Accept-Encoding": "gzip"})
    (tmp_path / "received.gguf").write_bytes(answer.content)
    again = await downloads.get(
        "/vocabulary", headers={"If-None-Match": f'"other", {answer.headers["ETag"]}'}
    )
    assert answer.headers["Content-Encoding"] == "gzip"
    assert Vocabulary.load(tmp_path / "received.gguf").identify() == lead.vocabulary.identify()
    assert (again.status_code, again.content) == (304, b"")


async def test_the_vocabulary_comes_uncompressed_to_those_who_ask_so(downloads):
    answer = await downloads.get("/vocabulary", headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in answer.headers
    assert answer.content[:4] == b"GGUF"
