import pytest

from lead.server.app import create_app
from lead.settings.host_names import AllowedHosts, machine_names
from lead.settings.keys import Keyring
from lead.settings.lead_settings import LeadSettings
from tests.lead.http.middleware.asgi import asgi_request
from tests.lead.http.middleware.test_auth import KEYS, MAY, bearer, keyring

NAMES = AllowedHosts({*machine_names("gpu-box"), "lead.example", "*.lan"})


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
