import pytest

from lead.http.middleware.hosts import AllowedOrigins
from lead.server.app import create_app
from lead.settings.lead_settings import LeadSettings
from tests.lead.http.middleware.asgi import asgi_request
from tests.lead.http.middleware.test_auth import bearer, keyring

PAGE = "https://chat.example"
PREFLIGHT = {"origin": PAGE, "access-control-request-method": "POST"}
ASKING = PREFLIGHT | {"access-control-request-headers": "authorization,content-type"}


def app(lead, *origins):
    return create_app(lead.app.state.services, keys=keyring(), origins=AllowedOrigins(origins))


async def test_pages_of_other_origins_cannot_read_answers_by_default(lead):
    _, headers, _ = await asgi_request(
        app(lead), "GET", "/v1/models", {"origin": PAGE} | bearer("the-client-key")
    )
    assert "access-control-allow-origin" not in headers
    assert (await asgi_request(app(lead), "OPTIONS", "/v1/models", ASKING))[0] == 401


@pytest.mark.parametrize("origins", [[PAGE], ["*"], [f"{PAGE}/"]])
async def test_pages_of_allowed_origins_can_read_answers(lead, origins):
    status, headers, _ = await asgi_request(app(lead, *origins), "OPTIONS", "/v1/chat/completions", ASKING)
    assert status == 200
    assert headers["access-control-allow-origin"] in {PAGE, "*"}
    assert headers["access-control-allow-headers"] == "authorization,content-type"


async def test_pages_of_allowed_origins_can_read_errors(lead):
    status, headers, _ = await asgi_request(app(lead, PAGE), "GET", "/v1/models", {"origin": PAGE})
    assert (status, headers["access-control-allow-origin"]) == (401, PAGE)


@pytest.mark.parametrize("origin", ["https://evil.example", "http://chat.example", "null", f"{PAGE}.evil"])
async def test_pages_of_other_origins_cannot_read_answers_if_some_are_allowed(lead, origin):
    status, headers, _ = await asgi_request(app(lead, PAGE), "OPTIONS", "/props", ASKING | {"origin": origin})
    assert status == 400
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("origin", "may"),
    [
        *(("http://localhost", True), ("http://127.0.0.1:3000", True), ("https://[::1]:80", True)),
        *(("http://notlocalhost", False), ("http://localhost.evil.example", False)),
    ],
)
def test_localhost_allows_all_pages_of_this_machine(origin, may):
    assert AllowedOrigins(["localhost"]).allow(origin) == may


@pytest.mark.parametrize(("origins", "status"), [([], 403), (["https://other.example"], 403), ([PAGE], 101)])
async def test_only_pages_of_allowed_origins_can_open_a_websocket(lead, origins, status):
    headers = {"origin": PAGE} | bearer("the-back-key")
    assert (await asgi_request(app(lead, *origins), "WEBSOCKET", "/v1/speculation", headers))[0] == status


IMAGE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
ITSELF = {"origin": "http://LEAD:5555", "host": "lead:5555"}
REFUSED = [
    *(IMAGE, {"sec-fetch-site": "same-site"}, {"origin": PAGE}, {"origin": "null"}, ITSELF | {"host": "x"}),
]
ANSWERED = [{}, {"sec-fetch-site": "none"}, {"sec-fetch-site": "same-origin", "origin": PAGE}, ITSELF]


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/props"), ("POST", "/slots/0"), ("DELETE", "/v1/members")]
)
async def test_without_keys_a_page_of_another_origin_can_send_nothing(lead, method, path):
    open_app = create_app(lead.app.state.services)
    for headers in REFUSED:
        assert (await asgi_request(open_app, method, path, headers))[0] == 403
    for headers in ANSWERED:
        assert (await asgi_request(open_app, method, path, headers))[0] != 403


@pytest.mark.parametrize("path", ["/health", "/"])
async def test_what_is_public_is_public_for_pages_too(lead, path):
    assert (await asgi_request(create_app(lead.app.state.services), "GET", path, IMAGE))[0] == 200


@pytest.mark.parametrize(
    ("origins", "status"), [([PAGE], 200), (["*"], 200), (["https://other.example"], 403)]
)
async def test_without_keys_a_page_of_an_allowed_origin_can_ask(lead, origins, status):
    open_app = create_app(lead.app.state.services, origins=AllowedOrigins(origins))
    headers = {"origin": PAGE, "sec-fetch-site": "cross-site"}
    assert (await asgi_request(open_app, "GET", "/props", headers))[0] == status


async def test_an_allowed_page_is_not_taken_for_another_that_names_no_origin(lead):
    open_app = create_app(lead.app.state.services, origins=AllowedOrigins([PAGE, "localhost"]))
    assert (await asgi_request(open_app, "GET", "/props", IMAGE))[0] == 403


def test_allowed_origins_are_a_setting():
    given = LeadSettings.from_command_line(["--cors-origins", f"{PAGE},http://localhost:3000"])
    assert given.security.cors_origins == (PAGE, "http://localhost:3000")
