import pytest

from lead.http.middleware.hosts import AllowedHosts, machine_names
from lead.http.middleware.keys import Keyring
from lead.server.app import create_app
from lead.settings.lead_settings import LeadSettings
from tests.lead.http.middleware.asgi import asgi_request
from tests.lead.http.middleware.test_auth import KEYS, MAY, bearer, keyring

NAMES = AllowedHosts({*machine_names("gpu-box"), "lead.example", "*.lan"})


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:5555", "a.localhost", "127.0.0.1:80", "192.168.1.20", "[::1]:5555"),
        *("[fe80::1]", "gpu-box:5555", "lead.example", "desk.lan:1", "a.b.lan", ""),
    ],
)
def test_the_machines_own_names_and_addresses_are_allowed(host):
    assert NAMES.allows(host)


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:5555", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("lan", "xlan", "lead.example.evil", "1.2.3.4@evil", "[::1", "a:b:c", ":80", "localhost:80:80"),
        "evil.example#localhost",
    ],
)
def test_other_names_are_not_allowed(host):
    assert not NAMES.allows(host)


def test_a_star_allows_any_name():
    assert AllowedHosts({"*"}).allows("evil.example")


@pytest.fixture(params=[Keyring(), keyring()], ids=["open", "with keys"])
def app(lead, request):
    return create_app(lead.app.state.services, keys=request.param, hosts=NAMES)


@pytest.mark.parametrize("key", [*KEYS.values(), "the-client-kez", None], ids=str)
async def test_no_route_answers_to_an_unknown_name_whatever_the_key(app, key):
    headers = {"host": "evil.example", **(bearer(key) if key else {})}
    for route in MAY:
        status, _, body = await asgi_request(app, *route, headers)
        assert (route, status, b"--allowed-hosts" in body) == (route, 403, True)


def checks(*arguments):
    return LeadSettings.from_command_line(list(arguments)).security.host_names() is not None


def test_names_are_checked_without_keys_or_if_some_are_configured():
    assert checks()
    assert not checks("--api-key", "secret")
    assert checks("--api-key", "secret", "--allowed-hosts", "lead.example")


def test_further_names_are_a_setting():
    names = LeadSettings.from_command_line(["--allowed-hosts", "lead.example,*.lan"]).security.host_names()
    assert [names.allows(host) for host in ("lead.example", "a.lan", "localhost", "evil.example")] == [
        *(True, True, True, False)
    ]
