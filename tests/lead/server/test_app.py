"""HEAD is answered where GET is."""

import pytest

from lead.server.app import create_app
from lead.settings.keys import Key, Keyring, Principal, Role
from tests.lead.http.event_streams import client_of
from tests.lead.http.middleware.asgi import asgi_request


@pytest.mark.parametrize("path", ["/", "/v1/models", "/props", "/slots"])
async def test_head_is_answered_where_get_is(lead, path):
    async with client_of(lead.app) as client:
        head, get = await client.head(path), await client.get(path)
    assert (head.status_code, head.headers["content-length"]) == (200, get.headers["content-length"])


async def test_head_is_not_answered_where_only_post_is(lead):
    async with client_of(lead.app) as client:
        response = await client.head("/tokenize")
    assert (response.status_code, response.headers["Allow"]) == (405, "POST")


async def test_head_takes_the_keys_that_get_takes(lead):
    app = create_app(lead.app.state.services, keys=Keyring([Key(Principal(Role.BACK, "x"), "secret")]))
    for path, expected in (("/v1/speculation", 200), ("/v1/models", 403), ("/health", 200)):
        status, _, _ = await asgi_request(app, "HEAD", path, {"x-api-key": "secret"})
        assert status == expected, path
