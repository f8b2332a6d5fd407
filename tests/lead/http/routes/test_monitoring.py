import asyncio

import pytest

from lead.engine.events import Committed, Started
from lead.server.app import create_app
from lead.settings.keys import Key, Keyring, Principal, Role
from shared.sampling.parameters import SamplingParameters
from tests.lead.http.event_streams import client_of
from tests.toy_engine import submit


def begin(lead, slot, n_generated=0, **sampling):
    sampling = SamplingParameters(seed=1, **sampling)
    sequence = lead.sequences.create(submit(tokens=[5, 6, 7], sampling=sampling, max_tokens=9))
    lead.sequences.apply(Started(sequence=sequence.id, n_cached=2, slot=slot), 1.0)
    if n_generated:
        step = Committed(sequence=sequence.id, start=3, tokens=[8] * n_generated)
        lead.sequences.apply(step, 2.0)
    return sequence


async def test_idle_slots_are_listed(client):
    slots = (await client.get("/slots")).json()
    assert slots == [
        {"id": index, "n_ctx": 128, "speculative": True, "is_processing": False} for index in range(4)
    ]


async def test_a_busy_slot_tells_how_far_it_is(lead, client):
    begin(lead, 2, n_generated=4, temperature=0.5)
    slots = (await client.get("/slots")).json()
    assert [slot["is_processing"] for slot in slots] == [False, False, True, False]
    busy = slots[2]
    assert (busy["n_prompt_tokens"], busy["n_prompt_tokens_cache"]) == (3, 2)
    assert busy["next_token"] == [{"has_next_token": True, "n_remain": 5, "n_decoded": 4}]
    assert (busy["params"]["temperature"], busy["params"]["n_predict"]) == (0.5, 9)


async def test_no_slot_shows_what_clients_wrote(lead, client):
    begin(lead, 0, logit_bias={7: 1.0})
    busy = (await client.get("/slots")).json()[0]
    assert {"prompt", "generated", "stop", "logit_bias", "grammar"} & (busy.keys() | busy["params"]) == set()


@pytest.mark.parametrize(("role", "sees_seed"), [(Role.CLIENT, False), (Role.ADMIN, True)])
async def test_only_admins_see_how_the_tokens_of_others_are_chosen(lead, role, sees_seed):
    begin(lead, 0, temperature=0.5)
    keyring = Keyring([Key(Principal(role, "x"), "secret")])
    app = create_app(lead.app.state.services, keys=keyring)
    async with client_of(app, headers={"x-api-key": "secret"}) as client:
        slots = (await client.get("/slots")).json()
    assert ("seed" in slots[0]["params"], "temperature" in slots[0]["params"]) == (sees_seed, sees_seed)
    assert slots[0]["params"]["n_predict"] == 9


async def test_a_slot_shows_the_sequence_that_got_it_last(lead, client):
    older, younger = begin(lead, 0, n_generated=4), begin(lead, 0, n_generated=2)
    for sequence, now, n_decoded in ((older, 3.0, 4), (younger, 4.0, 2)):
        lead.sequences.apply(Started(sequence=sequence.id, n_cached=2, slot=0, again=True), now)
        (busy, *_) = (await client.get("/slots")).json()
        assert busy["next_token"][0]["n_decoded"] == n_decoded


async def test_a_sequence_that_waits_is_in_no_slot(lead, client):
    lead.engine.hold()
    waiting = asyncio.ensure_future(client.post("/completion", json={"prompt": "Once"}))
    await lead.engine.submission.wait()
    assert not any(slot["is_processing"] for slot in (await client.get("/slots")).json())
    lead.engine.release()
    await waiting


async def test_a_load_balancer_can_ask_for_an_error_when_none_is_free(lead, client):
    sequences = [begin(lead, slot) for slot in range(4)]
    response = await client.get("/slots", params={"fail_on_no_slot": "1"})
    assert (response.status_code, response.json()["error"]["message"]) == (503, "no slot available")
    lead.sequences.discard(sequences[0])
    assert (await client.get("/slots", params={"fail_on_no_slot": "1"})).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/slots"), ("POST", "/slots/0"), ("POST", "/v1/embeddings")]
)
async def test_what_is_not_served_is_501_with_a_reason(lead, client, method, path):
    lead.use(slots=False)
    response = await client.request(method, path, json={})
    assert (response.status_code, response.json()["error"]["type"]) == (501, "not_supported_error")
    assert response.headers["x-should-retry"] == "false"
    assert "not support" in response.json()["error"]["message"]


def begin_load(lead, n_tokens, *, runs):
    sequence = lead.sequences.create(submit(tokens=[3] * n_tokens))
    if runs:
        lead.sequences.apply(Started(sequence=sequence.id, n_cached=0), 1.0)


@pytest.mark.parametrize("path", ["/loads", "/v1/loads"])
async def test_running_and_waiting_requests_are_counted_with_their_tokens(lead, client, path):
    begin_load(lead, 30, runs=True)
    begin_load(lead, 12, runs=True)
    begin_load(lead, 7, runs=False)
    body = (await client.get(path)).json()
    (load,), ready = body["loads"], lead.engine.ready
    assert (body["dp_rank_count"], load["dp_rank"], body["aggregate"]["total_reqs"]) == (1, 0, 3)
    assert (load["num_running_reqs"], load["num_waiting_reqs"]) == (2, 1)
    assert (load["num_used_tokens"], load["num_total_tokens"]) == (42, 49)
    assert (load["max_total_num_tokens"], load["max_running_requests"]) == (ready.n_ctx, ready.n_slots)
    assert load["token_usage"] == round(42 / ready.n_ctx, 4)
