"""HAProxy as deploy/fleet configures it, before two servers that answer all requests."""

import http.client
import json
import ssl
from contextlib import ExitStack

import httpx
import pytest

from lab.parts.processes import free_port
from tests.certificates import make_certificate
from tests.http_server import HttpServer, QuietHandler
from tests.routers import haproxy, start_haproxy

KEY = "key-of-alice"
HEADERS = {"Authorization": f"Bearer {KEY}"}
CLOSED = [
    *("/metrics", "/slots", "/slots/0", "/loads"),
    *("/v1/loads", "/v1/speculation", "/v1/speculation/vocabulary"),
]


class Echo(QuietHandler):
    """Answers with the path of the request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        content = self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("certificate"), "127.0.0.1")


@pytest.fixture(scope="module")
def doors(tmp_path_factory, certificate):
    """The URLs of a door with HTTP and of a door with HTTPS."""
    if (binary := haproxy()) is None:
        pytest.skip("no haproxy")
    folder = tmp_path_factory.mktemp("door")
    keys, chain_and_key = folder / "api", folder / "fleet.pem"
    keys.write_text(f"# clients\n{KEY}\n")
    chain_and_key.write_bytes(certificate.chain.read_bytes() + certificate.key.read_bytes())
    with ExitStack() as stack:
        leads = [stack.enter_context(HttpServer(Echo)).url for _ in range(2)]
        urls = []
        for pem in (None, chain_and_key):
            program, url = start_haproxy(binary, leads, keys, f"127.0.0.1:{free_port()}", pem)
            stack.enter_context(program)
            urls.append(url)
        yield urls


def ask(url, path, headers=HEADERS):
    """The status and the body for a path that is sent unchanged. `httpx` would rewrite some paths."""
    connection = http.client.HTTPConnection(httpx.URL(url).netloc.decode(), timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def encoded(path, index):
    """The path with the character at `index` percent-encoded."""
    return f"{path[:index]}%{ord(path[index]):02x}{path[index + 1 :]}"


def test_a_door_with_a_certificate_speaks_https(doors, certificate):
    context = ssl.create_default_context(cafile=certificate.authority)
    with httpx.Client(base_url=doors[1], verify=context, trust_env=False, timeout=60) as http:
        assert http.get("/props").status_code == 401
        assert http.get("/props", headers=HEADERS).text == "/props"


def test_a_door_with_a_certificate_does_not_speak_http(doors):
    with pytest.raises(http.client.BadStatusLine):
        ask(doors[1], "/props")


def test_what_clients_may_use_is_passed_on(doors):
    for path in ("/props", "/v1/chat/completions", "/%70rops", "/a%2fb?c=%20d"):
        assert ask(doors[0], path) == (200, path)


@pytest.mark.parametrize("path", CLOSED)
def test_what_is_closed_is_closed_however_it_is_written(doors, path):
    for index in range(1, len(path)):
        status, body = ask(doors[0], encoded(path, index))
        assert (status, json.loads(body)["error"]["type"]) == (404, "not_found_error"), encoded(path, index)
    assert ask(doors[0], path)[0] == 404


@pytest.mark.parametrize("path", ["/%zz", "/slots/%z", "/%73lots/%"])
def test_a_path_that_cannot_be_decoded_is_not_passed_on(doors, path):
    assert ask(doors[0], path)[0] == 400


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"x-api-key": "wrong"}])
def test_without_a_key_nothing_is_passed_on(doors, headers):
    assert ask(doors[0], "/props", headers)[0] == 401
    assert ask(doors[0], "/%70rops", headers)[0] == 401
