import pytest

from tests.lead.http.event_streams import client_of


@pytest.mark.parametrize("path", ["/", "/v1/models", "/props", "/slots"])
async def test_head_is_answered_where_get_is(lead, path):
    async with client_of(lead.app) as client:
        head, get = await client.head(path), await client.get(path)
    assert (head.status_code, head.headers["content-length"]) == (200, get.headers["content-length"])


async def test_head_is_not_answered_where_only_post_is(lead):
    async with client_of(lead.app) as client:
        response = await client.head("/tokenize")
    assert (response.status_code, response.headers["Allow"]) == (405, "POST")
