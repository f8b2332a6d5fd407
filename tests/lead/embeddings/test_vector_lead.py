"""A lead whose model continues no text: the requests that it takes, and its refusals of others."""

import asyncio

import httpx
import pytest
from starlette.testclient import TestClient

from lead import cli
from lead.embeddings.kind import kind
from lead.embeddings.vector_lead import VectorLead
from lead.settings.lead_settings import LeadSettings
from shared.errors import ConfigError
from shared.model_files.hub import Hub
from shared.protocol import Refused


def settings(model, **options):
    return LeadSettings.from_options(model=model, port=0, log_level="error", **options)


def test_a_text_model_makes_another_lead(tiny_model):
    assert kind(settings(tiny_model("llama")), None) is None
    assert kind(LeadSettings(), None) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"back": "builtin"}, "nothing can draft"),
        ({"takeover": True}, "--takeover"),
        ({"serve_embeddings": True}, "--serve-embeddings"),
        ({"embedding_model": "same"}, "--embedding-model.*only one of them"),
    ],
)
def test_what_it_does_not_do_is_refused_in_a_sentence(bert, options, message):
    options = {name: bert if value == "same" else value for name, value in options.items()}
    with pytest.raises(ConfigError, match=message):
        kind(settings(bert, **options), None)


async def test_it_makes_vectors_and_ranks_and_says_why_it_does_nothing_else(bert, ranker):
    lead = kind(settings(bert, rerank_model=ranker, alias="mine", metrics=True), None)
    assert isinstance(lead, VectorLead)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(lead.app), base_url="http://127.0.0.1"
    ) as client:
        assert (await client.get("/health")).status_code == 503
        await lead._models.start()
        try:
            assert (await client.get("/health")).json() == {"status": "ok"}
            listed = (await client.get("/v1/models")).json()["data"]
            assert [(each["id"], each["task"]) for each in listed] == [
                ("mine", "embedding"),
                ("tiny BERT", "rerank"),
            ]
            assert (await client.get("/v1/models/mine")).json()["meta"]["n_embd"] == 32
            assert (await client.get("/v1/models/other")).status_code == 404
            assert (await client.get("/props")).json()["model_alias"] == "mine"
            reply = await client.post("/v1/embeddings", json={"input": "hello"})
            assert len(reply.json()["data"][0]["embedding"]) == 32
            reply = await client.post("/v1/rerank", json={"query": "fox", "documents": ["a", "b"]})
            assert len(reply.json()["results"]) == 2
            tags = (await client.get("/api/tags")).json()["models"]
            assert [each["name"] for each in tags] == ["mine:latest", "tiny-BERT:latest"]
            assert len((await client.get("/api/ps")).json()["models"]) == 2
            assert (await client.get("/api/version")).is_success
            shown = await client.post("/api/show", json={"name": "mine:latest"})
            assert shown.json()["capabilities"] == ["embedding"]
            assert (await client.post("/api/show", json={"model": "other"})).status_code == 400
            assert 'embedding_texts_total{model="mine"} 1.0' in (await client.get("/metrics")).text
            refused = await client.post("/v1/chat/completions", json={})
            assert refused.status_code == 501
            assert refused.json()["error"]["message"] == (
                "mine embeds texts (/v1/embeddings) and cannot generate text. Use a text model"
            )
        finally:
            await lead._models.end()


def test_a_back_is_refused_in_a_sentence(bert):
    lead = kind(settings(bert), None)
    with TestClient(lead.app).websocket_connect("/v1/speculation", headers={"host": "127.0.0.1"}) as socket:
        socket.send_text("hello")
        assert "cannot generate text" in Refused.model_validate_json(socket.receive_text()).reason


async def test_it_ends_with_a_sentence_if_its_file_cannot_be_loaded(bert, tmp_path):
    path = tmp_path / "cut.gguf"
    path.write_bytes(bert.read_bytes()[:5000])
    with pytest.raises(ConfigError, match="cannot be loaded"):
        await asyncio.wait_for(kind(settings(path), None).serve(), 60)


def test_a_model_of_the_hub_is_looked_at_before_it_is_served(bert, monkeypatch):
    monkeypatch.setattr(Hub, "fetch", lambda _hub, _model, **_options: bert)
    program = cli.serving(LeadSettings.from_options(hf_repo="user/repo", port=0, log_level="error"))
    assert isinstance(program, VectorLead)
