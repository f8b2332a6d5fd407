"""Each sampling parameter reaches the engine from a request of each API. None is accepted and ignored."""

import pytest
from pydantic import ValidationError

from lead.chat_format.unused_fields import SAMPLING
from shared.sampling.asked_fields import settable_parameters
from shared.sampling.parameters import SamplingParameters
from tests.lead.http.event_streams import client_of

ASK = {"messages": [{"role": "user", "content": "Hello"}]}
APIS = {
    "/v1/chat/completions": ASK,
    "/v1/completions": {"prompt": "Once"},
    "/completion": {"prompt": "Once"},
    "/v1/responses": {"input": "Hello"},
    "/v1/messages": ASK,
    "/api/chat": ASK | {"stream": False},
    "/api/generate": {"prompt": "Once", "stream": False},
}
VALUES = (True, 1, 2, 0.5)


def another(name):
    """A JSON value that is not the default."""
    field = SamplingParameters.model_fields[name]
    if name == "grammar":
        return 'root ::= "a"'
    if name == "logit_bias":
        return {"5": 1.0}
    if isinstance(field.default, tuple):
        return list(field.default[:1])
    return next(value for value in VALUES if value != field.default and is_valid(name, value))


def is_valid(name, value):
    try:
        SamplingParameters.model_validate({"seed": 0, name: value}, strict=True)
    except ValidationError:
        return False
    return True


def body(path, **fields):
    return APIS[path] | ({"options": fields} if path.startswith("/api/") else fields)


@pytest.fixture
async def client(lead):
    lead.will_say("x")
    async with client_of(lead.app) as client:
        yield client


async def ask(client, path, **fields):
    return await client.post(path, json=body(path, **fields))


@pytest.mark.parametrize("path", APIS)
async def test_each_field_changes_what_the_engine_gets(lead, client, path):
    await ask(client, path, seed=5)
    ignored = []
    for name in settable_parameters():
        response = await ask(client, path, **{"seed": 5, name: another(name)})
        assert response.status_code == 200, response.text
        plain, *_, changed = (request.sampling for request in lead.engine.submitted)
        if getattr(changed, name) == getattr(plain, name):
            ignored.append(name)
    assert not ignored


@pytest.mark.parametrize("path", APIS)
async def test_what_drafts_cannot_follow_is_refused_by_name(client, path):
    for name, unused in SAMPLING.items():
        response = await ask(client, path, **{name: 7})
        is_hint = unused.harmless is None
        assert (response.status_code, is_hint or f"{name}: " in response.text) == (
            200 if is_hint else 400,
            True,
        )


@pytest.mark.parametrize("path", APIS)
async def test_what_is_refused_may_be_switched_off(client, path):
    response = await ask(client, path, mirostat=0, adaptive_target=-0.01, min_keep=0, tfs_z=1.0)
    assert response.status_code == 200
