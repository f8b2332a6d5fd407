import asyncio
import dataclasses

import pytest
from fastapi import Request

from lead.router import router_api
from lead.router.model_pool import ModelState
from lead.router.models_file import ServedModel
from lead.settings.image_options import ImageOptions
from lead.settings.keys import Key, Keyring, Principal, Role
from lead.settings.lead_settings import LeadSettings
from shared.errors import ConfigError
from tests.lead.router.fakes import FakeProcess, failing, served, until

NAMED = [served("a", aliases=("gpt-4",)), served("b model")]


async def records(house):
    answer = (await house.client.get("/v1/models")).json()
    return {record["id"]: record for record in answer["data"]}


async def test_all_models_are_listed_with_their_states(routed):
    house = await routed()
    assert {each["status"]["value"] for each in (await records(house)).values()} == {"unloaded"}
    await house.ask("a")
    listed = await records(house)
    assert (listed["a"]["status"], listed["a"]["meta"]) == ({"value": "loaded"}, {"n_ctx": 64})
    assert listed["b"]["status"] == {"value": "unloaded"}


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/b"])
async def test_the_list_may_change_while_files_are_read(routed, monkeypatch, path):
    house = await routed()

    def read(_path):
        done = asyncio.run_coroutine_threadsafe(serve(), loop)
        done.result(10)
        return 1

    async def serve():
        house.host.serve([served("a"), served("c")])

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(router_api, "size_if_known", read)
    assert (await house.client.get(path)).status_code in {200, 404}


async def test_which_models_see_is_known_before_they_are_loaded(routed, tmp_path):
    settings = LeadSettings(images=ImageOptions(mmproj=tmp_path / "mmproj.gguf"))
    house = await routed(models=[served("a"), ServedModel("b", {"model": "/b.gguf"}, settings)])
    listed = await records(house)
    inputs = {name: record["architecture"]["input_modalities"] for name, record in listed.items()}
    assert inputs == {"a": ["text"], "b": ["text", "image"]}


async def test_one_that_failed_says_so_as_in_llama_server(routed):
    house = await routed(make=lambda: FakeProcess(failure=failing("a: no such file")))
    answer = await house.ask("a")
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, "a: no such file")
    status = (await records(house))["a"]["status"]
    assert (status["value"], status["failed"], status["message"]) == ("unloaded", True, "a: no such file")


async def test_a_request_for_a_damaged_model_is_not_to_be_repeated(routed, tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    settings = LeadSettings.from_options(model=tmp_path / "a.gguf")
    make, model = (
        lambda: FakeProcess(failure=failing("it is incomplete")),
        ServedModel("a", {"model": "a.gguf"}, settings),
    )
    answer = await (await routed(models=[model], make=make)).ask("a")
    assert (answer.status_code, answer.headers["x-should-retry"]) == (500, "false")
    assert "retry-after" not in answer.headers


@pytest.mark.parametrize("name", ["a", "gpt-4", "a:latest"])
async def test_a_model_has_several_names(routed, name):
    house = await routed(models=NAMED)
    assert (await house.ask(name)).status_code == 201
    assert (await house.client.get(f"/v1/models/{name}")).json()["id"] == "a"


async def test_ollamas_names_have_no_spaces(routed):
    house = await routed(models=NAMED)
    tags = (await house.client.get("/api/tags")).json()["models"]
    assert [each["name"] for each in tags] == ["a:latest", "b-model:latest"]
    assert (await house.ask("b-model:latest", "/api/chat")).status_code == 201
    assert house.host.process("b model")


async def test_a_name_that_does_not_exist_is_answered_with_those_that_do(routed):
    house = await routed()
    answer = await house.ask("c")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert "Available models: a, b" in answer.json()["error"]["message"]
    assert (await house.client.get("/v1/models/c")).status_code == 404
    assert (await house.ask("c", "/v1/messages")).json()["type"] == "error"
    assert (await house.ask("c", "/models/load")).status_code == 404


async def test_without_a_name_the_model_in_use_answers(routed):
    house = await routed()
    answer = await house.client.post("/completion", json={"prompt": "x"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
    await house.ask("b")
    assert (await house.client.post("/completion", json={"prompt": "x"})).status_code == 201
    assert (await house.client.get("/props")).status_code == 201
    assert house.host.process("a") is None


async def test_without_a_name_what_makes_vectors_is_not_asked_to_chat(routed):
    house = await routed()
    await house.ask("b")
    house.host.process("b").about.record["task"] = "embedding"
    for path, status in {"/v1/embeddings": 201, "/v1/rerank": 400, "/completion": 400}.items():
        assert (await house.client.post(path, json={"prompt": "x"})).status_code == status


async def test_the_only_model_needs_no_name_but_only_a_name_has_a_get_request_start_it(routed):
    house = await routed("a")
    assert (await house.client.get("/props")).status_code == 503
    assert not house.house.processes
    assert (await house.client.get("/props?model=a")).status_code == 201
    assert (await house.client.post("/completion", json={"prompt": "x"})).status_code == 201


async def test_models_are_loaded_and_unloaded_on_demand(routed):
    house = await routed()
    assert (await house.ask("a", "/models/load")).json() == {"success": True}
    await until(lambda: house.host.process("a"))
    assert (await house.ask("a", "/models/unload")).json() == {"success": True}
    async with asyncio.timeout(20):
        await house["a"].ended


async def test_ollamas_empty_request_with_keep_alive_0_unloads(routed):
    house = await routed()
    assert (await house.ask("a", "/api/generate", keep_alive="0s")).json()["done_reason"] == "unload"
    assert not house.house.processes
    await house.ask("a", "/api/chat", messages=[1], keep_alive="5m")
    assert house.host.state("a").idle_seconds == 300
    (told,) = (await house.client.get("/api/ps")).json()["models"]
    assert told["name"] == "a:latest"
    assert told["expires_at"] < "2100"
    answer = (await house.ask("a", "/api/chat", keep_alive=0)).json()
    assert answer["message"]["content"] == ""
    assert house.host.state("a").state is not ModelState.LOADED


async def test_to_show_a_model_does_not_load_it(routed):
    house = await routed()
    assert (await house.ask("a", "/api/show")).json()["capabilities"] == ["completion", "tools"]
    assert not house.house.processes
    await house.ask("a")
    assert (await house.ask("a", "/api/show")).status_code == 201


async def test_the_list_is_read_anew_when_asked(routed):
    house = await routed()
    await house.client.get("/models?reload=1")
    await house.client.get("/models?reload=0")
    assert house.reloads == [1]


async def test_a_list_that_cannot_be_read_leaves_all_as_it_was(routed):
    house = await routed()

    async def fail():
        raise ConfigError("models.toml: [b] is not a model of this lead")

    house.app.state.services = dataclasses.replace(house.services, reload=fail)
    answer = await house.client.get("/models?reload=1")
    assert (answer.status_code, "models.toml" in answer.json()["error"]["message"]) == (503, True)
    assert set(await records(house)) == {"a", "b"}


async def test_what_has_no_principal_is_not_passed_on(routed):
    """A request without a principal is not read, and touches no model, however it got in."""
    house = await routed()

    async def receive():
        raise AssertionError

    for path in ("/v1/completions", "/health", "/"):
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b"model=a", "headers": []}
        answer = await router_api.forward(Request(scope | {"app": house.app}, receive), house.services)
        assert answer.status_code == 401
    assert not house.house.processes


async def test_health_says_ok_until_the_end(routed):
    house = await routed()
    assert (await house.client.get("/health")).json() == {"status": "ok"}
    assert (await house.client.get("/api/version")).status_code == 200
    house.app.state.is_leaving = True
    assert (await house.client.get("/v1/health")).json()["status"] == "draining"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *(("/completion", body) for body in (b"[", b'{"model": 1}', b'{"model": "' + b"x" * 2000 + b'"}')),
        ("/api/chat", b'{"model": "a", "keep_alive": "soon"}'),
    ],
)
async def test_a_wrong_body_starts_nothing(routed, path, body):
    house = await routed()
    answer = await house.client.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert not house.house.processes


async def test_keys_and_roles_are_those_of_a_lead(routed):
    keys = {role: f"the-{role.value}-key" for role in Role}
    house = await routed(keys=Keyring(Key(Principal(role, "x"), secret) for role, secret in keys.items()))
    expected = {None: 401, Role.CLIENT: 201, Role.BACK: 403, Role.ADMIN: 201}
    for role, status in expected.items():
        house.client.headers["authorization"] = f"Bearer {keys.get(role, 'wrong')}"
        assert (await house.ask("a")).status_code == status
        assert (await house.ask("a", "/models/load")).status_code == status - (status == 201)
    told = (await house.ask("a")).json()
    assert told["headers"]["authorization"] == "Bearer of admin x"
