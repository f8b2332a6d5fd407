"""Models beside the model that continues texts, wherever models are shown."""

import dataclasses

import pytest

from lead.http.side_models import SideModel, SideWork, show_side_models
from lead.metrics.exporter import MetricsExporter


@pytest.fixture
def embedder(lead):
    info = dataclasses.replace(lead.app.state.services.vocabulary.info, name="tiny BERT", architecture="bert")
    work = SideWork(n_texts=3, n_tokens=40, seconds=1.5, n_waiting=2)
    model = SideModel("tiny BERT", "embedding", info, n_ctx=512, n_out=384, is_loaded=True, work=work)
    show_side_models(lead.app, lambda: [model])
    yield model
    show_side_models(lead.app, list)


@pytest.mark.usefixtures("embedder")
async def test_it_is_listed_after_the_one_that_continues_texts(client):
    listed = (await client.get("/v1/models")).json()
    assert [(each["id"], each.get("task")) for each in listed["data"]] == [
        ("toy", None),
        ("tiny BERT", "embedding"),
    ]
    assert [each["capabilities"] for each in listed["models"]] == [["completion"], ["embedding"]]
    record = (await client.get("/v1/models/tiny BERT")).json()
    assert (record["meta"]["n_ctx"], record["meta"]["n_embd"]) == (512, 384)


@pytest.mark.usefixtures("embedder")
async def test_props_name_it(client):
    assert (await client.get("/props")).json()["other_models"] == {"tiny BERT": "embedding"}


@pytest.mark.usefixtures("embedder")
async def test_clients_of_ollama_find_it(client):
    assert [each["name"] for each in (await client.get("/api/tags")).json()["models"]] == [
        "toy:latest",
        "tiny-BERT:latest",
    ]
    running = (await client.get("/api/ps")).json()["models"]
    assert [each["context_length"] for each in running] == [128, 512]
    shown = (await client.post("/api/show", json={"model": "tiny-BERT"})).json()
    assert (shown["capabilities"], shown["details"]["family"]) == (["embedding"], "bert")
    other = (await client.post("/api/show", json={"model": "toy"})).json()
    assert other["capabilities"][0] == "completion"


async def test_one_that_was_freed_is_not_in_memory(lead, client, embedder):
    show_side_models(lead.app, lambda: [dataclasses.replace(embedder, is_loaded=False)])
    assert len((await client.get("/api/ps")).json()["models"]) == 1


@pytest.mark.usefixtures("embedder")
async def test_its_work_is_measured(lead, client):
    lead.app.state.metrics = MetricsExporter(lead.sequences, lead.backs)
    lines = (await client.get("/metrics")).text.splitlines()
    assert {
        'llama_duo:embedding_texts_total{model="tiny BERT"} 3.0',
        'llama_duo:embedding_tokens_total{model="tiny BERT"} 40.0',
        'llama_duo:embedding_seconds_total{model="tiny BERT"} 1.5',
        'llama_duo:embedding_texts_waiting{model="tiny BERT"} 2.0',
    } <= set(lines)


async def test_without_any_there_are_no_metrics_of_them(lead, client):
    lead.app.state.metrics = MetricsExporter(lead.sequences, lead.backs)
    assert "embedding" not in (await client.get("/metrics")).text


async def test_the_model_itself_is_not_another_one(lead, client, embedder):
    own = dataclasses.replace(embedder, name="toy", is_other=False)
    show_side_models(lead.app, lambda: [own])
    assert [each["id"] for each in (await client.get("/v1/models")).json()["data"]] == ["toy"]
    assert len((await client.get("/api/tags")).json()["models"]) == 1
    shown = (await client.post("/api/show", json={"model": "toy"})).json()
    assert {"completion", "embedding"} <= set(shown["capabilities"])
    assert (await client.get("/props")).json()["other_models"] == {"toy": "embedding"}
