import gzip
import hashlib
import re
from pathlib import Path

import pytest

import lead.http.page
from lead.http.page import FILES
from lead.server.app import create_app
from tests.lead.http.event_streams import client_of

VENDOR = Path(lead.http.page.__file__).parent / "vendor"
OWN = {path: file for path, file in FILES.items() if "/vendor/" not in path}


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
    named = {match for file in OWN.values() for match in re.findall(r"//[\w.-]+", file.content.decode())}
    assert named <= {"//www.w3.org"}  # SVG's namespace, which is not requested


def test_no_file_makes_elements_of_text():
    code = "".join(file.content.decode() for path, file in OWN.items() if path.endswith(".js"))
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser", code)


def test_other_peoples_files_are_as_their_script_fetched_them():
    sums = dict(line.split()[::-1] for line in (VENDOR / "SHA256SUMS").read_text().splitlines())
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.iterdir()}
    assert sums == {name: value for name, value in found.items() if name not in {"SHA256SUMS", "fetch.sh"}}


def test_other_peoples_files_have_their_licenses_beside_them():
    fetched = re.findall(r"^take (\S+)", (VENDOR / "fetch.sh").read_text(), re.MULTILINE)
    assert re.findall(r"^=== (\S+)", (VENDOR / "LICENSES").read_text(), re.MULTILINE) == fetched


async def test_files_are_sent_compressed_to_those_who_can_read_it(client):
    path = "/page/vendor/temml.min.js"
    response = await client.get(path, headers={"Accept-Encoding": "gzip"})
    assert (response.headers["content-encoding"], response.content) == ("gzip", FILES[path].content)
    plain = await client.get(path, headers={"Accept-Encoding": "identity"})
    assert ("content-encoding" in plain.headers, plain.content) == (False, FILES[path].content)


def test_the_whole_page_is_small():
    assert sum(len(gzip.compress(file.content)) for file in FILES.values()) <= 250_000
