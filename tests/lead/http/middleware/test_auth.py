import json
import re

import pytest
from fastapi.routing import iter_route_contexts
from starlette.datastructures import Headers
from starlette.routing import WebSocketRoute

from lead.http.middleware.auth import presented_key
from lead.http.page import FILES
from lead.http.routes import models
from lead.server.app import create_app
from lead.settings.keys import Key, Keyring, Principal, Role
from tests.lead.http.middleware.asgi import asgi_request

KEYS = {role: f"the-{role.value}-key" for role in Role}
EVERYBODY, CLIENTS, BACKS, ADMINS = (
    set(Role) | {None},
    {Role.CLIENT, Role.ADMIN},
    {Role.BACK, Role.ADMIN},
    {Role.ADMIN},
)
MAY = {
    **{("GET", path): EVERYBODY for path in ("/health", "/v1/health", *FILES)},
    ("POST", "/v1/join"): EVERYBODY,
    ("GET", "/ca.crt"): EVERYBODY,
    **{(method, "/v1/invitations"): ADMINS for method in ("POST", "DELETE")},
    **{(method, "/v1/members"): ADMINS for method in ("GET", "POST", "DELETE")},
    **{(method, "/openapi.json"): CLIENTS for method in ("GET", "HEAD")},
    ("POST", "/v1/messages"): CLIENTS,
    ("POST", "/v1/messages/count_tokens"): CLIENTS,
    **{
        ("POST", f"{version}/{name}{counting}"): CLIENTS
        for version in ("", "/v1")
        for name in ("responses", "chat/completions")
        for counting in ("", "/input_tokens")
    },
    **{("POST", path): CLIENTS for path in ("/v1/completions", "/completion", "/completions", "/infill")},
    **{("GET", f"{version}/{name}"): CLIENTS for version in ("", "/v1") for name in ("models", "loads")},
    **{("GET", f"{version}/models/{{name:path}}"): CLIENTS for version in ("", "/v1")},
    **{("GET", path): CLIENTS for path in ("/props", "/slots", "/metrics", "/lora-adapters")},
    **{("POST", path): CLIENTS for path in ("/apply-template", "/tokenize", "/detokenize")},
    **{("POST", f"/api/{name}"): CLIENTS for name in ("chat", "generate", "show", "embed", "embeddings")},
    **{("POST", f"/api/{name}"): CLIENTS for name in ("pull", "push", "create", "copy")},
    **{("GET", f"/api/{name}"): CLIENTS for name in ("version", "tags", "ps")},
    ("DELETE", "/api/delete"): CLIENTS,
    ("POST", "/slots/{id_slot}"): ADMINS,
    **{("POST", path): CLIENTS for path in models.REASONS},
    **{("POST", path): CLIENTS for path in ("/embedding", "/embeddings", "/v1/embeddings")},
    **{("POST", f"{version}/rerank"): CLIENTS for version in ("", "/v1", "/v2")},
    **{("POST", f"{version}/reranking"): CLIENTS for version in ("", "/v1")},
    **{("GET", f"/v1/speculation{of}"): set(Role) for of in ("", "/vocabulary")},
    ("PUT", "/v1/speculation"): ADMINS,
    **{(method, "/v1/speculation"): BACKS for method in ("POST", "WEBSOCKET")},
    # Not routes: what is not there is protected, too.
    **{("GET", path): CLIENTS for path in ("/nowhere", "/v1/speculation/", "//health", "/page/")},
    ("GET", "/health/../props"): CLIENTS,
    ("DELETE", "/v1/speculation"): CLIENTS,
    ("WEBSOCKET", "/nowhere"): CLIENTS,
}


def all_routes():
    for context in iter_route_contexts(create_app().routes):
        methods = {"WEBSOCKET"} if isinstance(context.original_route, WebSocketRoute) else context.methods
        for method in methods:
            yield method, context.path


def keyring():
    return Keyring(Key(Principal(role, "x"), secret) for role, secret in KEYS.items())


def bearer(secret):
    return {"authorization": f"Bearer {secret}"}


@pytest.fixture
def app(lead):
    return create_app(lead.app.state.services, keys=keyring())


def test_the_table_covers_every_route():
    """Add a new route to MAY, and to lead/http/middleware/auth.py if it is not for clients."""
    assert set(all_routes()) - set(MAY) == set()


async def statuses(app, headers):
    """The status of the answer to each method and path of MAY."""
    return {route: (await asgi_request(app, *route, headers))[0] for route in MAY}


@pytest.mark.parametrize("role", Role, ids=str)
async def test_a_role_is_admitted_only_where_it_may(app, role):
    answered = await statuses(app, bearer(KEYS[role]))
    refused = {route for route, status in answered.items() if status in {401, 403}}
    assert refused == {route for route, roles in MAY.items() if role not in roles}
    assert {answered[route] for route in refused} <= {403}


@pytest.mark.parametrize("headers", [{}, bearer("the-client-kez")], ids=["none", "wrong"])
async def test_without_a_right_key_only_public_routes_answer(app, headers):
    answered = await statuses(app, headers)
    refused = {route for route, status in answered.items() if status in {401, 403}}
    assert refused == {route for route, roles in MAY.items() if None not in roles}
    assert {answered[route] for route in refused} == {401}


async def test_of_many_wrong_keys_few_are_compared(app):
    statuses = [(await asgi_request(app, "GET", "/props", bearer(f"{i}")))[0] for i in range(240)]
    assert [statuses.count(each) for each in (401, 429)] == [20, 220]
    status, headers, _ = await asgi_request(app, "GET", "/props", bearer("another"))
    assert (status, headers["retry-after"]) == (429, "1")


async def test_a_lead_without_keys_admits_everyone_everywhere(lead):
    assert not {401, 403} & set((await statuses(lead.app, {})).values())


async def test_a_missing_key_is_answered_as_llama_server_and_openai_do(app):
    status, headers, body = await asgi_request(app, "GET", "/props")
    assert (status, headers["www-authenticate"]) == (401, "Bearer")
    error = json.loads(body)["error"]
    assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")
    assert re.match("Invalid API Key", error["message"])


async def test_a_key_of_another_role_is_answered_with_the_role_that_is_needed(app):
    _, _, body = await asgi_request(app, "PUT", "/v1/speculation", bearer(KEYS[Role.CLIENT]))
    assert json.loads(body)["error"] == {
        "message": "this key has the role client, but this request needs the role admin",
        "type": "permission_error",
        "param": None,
        "code": None,
    }


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer the-client-key"},
        {"authorization": "bearer the-client-key"},
        {"x-api-key": "the-client-key"},
        {"authorization": "Basic abc", "x-api-key": "the-client-key"},
    ],
)
async def test_a_key_is_read_from_the_headers_that_clients_use(app, headers):
    assert (await asgi_request(app, "GET", "/v1/models", headers))[0] == 200


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer "}, {"authorization": "the-client-key"}])
def test_a_header_without_a_key_gives_none(headers):
    assert presented_key(Headers(headers)) is None
