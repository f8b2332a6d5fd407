import pytest

from lead.settings.host_names import AllowedHosts, machine_names

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
