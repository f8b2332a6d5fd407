import asyncio

import pytest

from lead.engine.events import Exactness
from lead.engine_client.engine_state import EngineState
from shared.llama import library


async def test_health_is_ok_when_requests_are_served(client):
    response = await client.get("/health")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/props", "/v1/speculation"])
async def test_before_the_vocabulary_is_read_everything_is_503(lead, client, path):
    lead.app.state.services = None
    response = await client.get(path)
    assert (response.status_code, response.json()["error"]["type"]) == (503, "unavailable_error")


async def test_health_says_when_the_engine_is_started_again(lead, client):
    lead.engine.state = EngineState.RESTARTING
    body = (await client.get("/health")).json()
    assert (body["status"], body["error"]["type"]) == ("restarting", "unavailable_error")
    assert "is restarting" in body["error"]["message"]


async def test_requests_are_503_with_a_delay_before_the_model_is_loaded(lead, client):
    lead.engine.state = EngineState.STARTING
    response = await client.post("/v1/completions", json={"prompt": "x"})
    assert response.status_code == 503
    assert int(response.headers["Retry-After"]) > 0
    assert "is loading" in response.json()["error"]["message"]


async def test_requests_wait_while_the_engine_is_started_again(lead, client):
    lead.will_say("so it goes")
    lead.engine.state = EngineState.RESTARTING
    begun = asyncio.Event()
    lead.sequences.on_create(lambda _: begun.set())
    asking = asyncio.ensure_future(client.post("/v1/completions", json={"prompt": "x"}))
    await begun.wait()
    assert lead.engine.submitted == []
    lead.engine.state = EngineState.READY
    lead.engine.feed()
    assert (await asking).json()["choices"][0]["text"] == "so it goes"


async def test_the_model_is_listed_under_its_alias(client):
    (model,) = (await client.get("/v1/models")).json()["data"]
    assert (model["id"], model["object"]) == ("toy", "model")
    assert (model["aliases"], model["tags"]) == (["toy"], ["small"])
    assert (model["meta"]["n_vocab"], model["meta"]["n_ctx_train"]) == (4096, 2048)


PROPS = {"total_slots": 4, "bos_token": "", "eos_token": "<|im_end|>", "cpu_kernel": library.kernel()}
ABSENT = dict.fromkeys(("endpoint_metrics", "endpoint_props", "context_shift"), False)


async def test_props_tell_what_clients_ask_llama_server_for(client):
    props = (await client.get("/props")).json()
    assert (PROPS | ABSENT | {"endpoint_slots": True}).items() <= props.items()
    assert props["default_generation_settings"]["n_ctx"] == 128
    assert props["default_generation_settings"]["params"]["temperature"] == 0.8
    assert "<|im_start|>" in props["chat_template"]


async def test_props_tell_what_is_promised_of_texts(lead, client):
    lead.engine.ready = lead.engine.ready.model_copy(
        update={"exactness": Exactness(cost=1.5, guarantee="the best")}
    )
    props = (await client.get("/props")).json()
    assert (props["exact"], props["exact_cost"]) == (False, 1.5)
    assert props["promise"] == "the best"


async def test_props_tell_where_the_layers_are(lead, client):
    lead.engine.ready = lead.engine.ready.model_copy(update={"devices": "3 of 7 layers: GPU0"})
    assert (await client.get("/props")).json()["devices"] == "3 of 7 layers: GPU0"
    assert (await client.get("/v1/speculation")).json()["lead"]["devices"] == "3 of 7 layers: GPU0"


async def test_the_model_is_also_listed_for_clients_made_for_ollama(client):
    (model,) = (await client.get("/models")).json()["models"]
    assert (model["name"], model["capabilities"]) == ("toy", ["completion"])


async def test_props_tell_what_a_context_shift_keeps(lead, client):
    lead.use(context_shift=True, keep=7)
    props = (await client.get("/props")).json()
    assert (props["context_shift"], props["default_generation_settings"]["params"]["n_keep"]) == (True, 7)


@pytest.mark.parametrize("path", ["/v1/models/org/toy", "/models/second"])
async def test_a_model_is_found_by_each_of_its_names(lead, client, path):
    lead.use(alias="org/toy,second")
    listed = (await client.get("/v1/models")).json()["data"]
    assert [(await client.get(path)).json()] == listed


async def test_another_model_is_404(client):
    response = await client.get("/v1/models/gpt-5")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")
