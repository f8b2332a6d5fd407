import re

import pytest

from lead.http.page import FILES
from lead.server.app import create_app
from tests.lead.http.event_streams import client_of


@pytest.mark.parametrize(
    ("path", "media_type"),
    [("/", "text/html"), ("/page/page.css", "text/css"), ("/page/page.js", "text/javascript")],
)
async def test_the_page_is_served(client, path, media_type):
    response = await client.get(path)
    assert (response.status_code, response.headers["content-type"].split(";")[0]) == (200, media_type)


@pytest.mark.parametrize("path", FILES)
async def test_browsers_are_told_what_each_file_may_do(client, path):
    headers = (await client.get(path)).headers
    policy = dict(part.split(maxsplit=1) for part in headers["content-security-policy"].split("; "))
    assert (policy["default-src"], policy["script-src"], policy["style-src"]) == (
        "'none'",
        "'self'",
        "'self'",
    )
    assert (policy["frame-ancestors"], policy["base-uri"], policy["form-action"]) == ("'none'",) * 3
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


async def test_the_page_is_there_while_the_model_is_being_read():
    async with client_of(create_app()) as client:
        assert (await client.get("/")).status_code == 200


async def test_it_can_be_switched_off():
    async with client_of(create_app(with_page=False)) as client:
        assert {(await client.get(path)).status_code for path in FILES} == {404}


def test_no_file_names_another_server():
    named = {match for file in FILES.values() for match in re.findall(r"//[\w.-]+", file.content.decode())}
    assert named <= {"//www.w3.org"}  # SVG's namespace, which is not requested


def test_no_file_makes_elements_of_text():
    code = "".join(file.content.decode() for path, file in FILES.items() if path.endswith(".js"))
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser", code)
