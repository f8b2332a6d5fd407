import pytest

from lead.settings.keys import ANYONE
from lead.settings.lead_settings import LeadSettings


def settings(*arguments):
    return LeadSettings.from_command_line(list(arguments))


def whose(given, *secrets):
    ring = given.security.keyring()
    return [str(ring.identify(secret)) for secret in secrets]


def test_without_keys_every_request_is_allowed():
    assert settings().security.keyring().identify(None) == ANYONE


def test_keys_are_options_that_may_be_repeated_or_comma_separated():
    given = settings("--api-key", "a", "--api-key", "b,c", "--back-key", "d", "--admin-key", "e")
    assert whose(given, "a", "b", "c", "d", "e", "f") == [
        *("client client-1", "client client-2", "client client-3", "back back-1", "admin admin-1", "None")
    ]


def test_keys_are_variables(monkeypatch):
    monkeypatch.setenv("LEAD_API_KEY", "a,b")
    monkeypatch.setenv("LEAD_BACK_KEY", "c")
    assert whose(settings(), "b", "c") == ["client client-2", "back back-1"]


def test_keys_are_files(tmp_path):
    for name, line in {"clients": "a", "backs": "b", "admins": "c", "all": "client bob d"}.items():
        (tmp_path / name).write_text(f"{line}\n")
    given = settings(
        *("--api-key-file", str(tmp_path / "clients"), "--back-key-file", str(tmp_path / "backs")),
        *("--admin-key-file", str(tmp_path / "admins"), "--keys-file", str(tmp_path / "all")),
    )
    assert whose(given, "a", "b", "c", "d") == [
        *("client client-1", "back back-1", "admin admin-1", "client bob")
    ]


def test_keys_are_not_shown():
    given = settings("--api-key", "secret", "--back-key", "secret")
    assert "secret" not in f"{given!r} {given} {given.model_dump_json()}"


@pytest.mark.parametrize(
    ("host", "given"),
    [
        *((host, ()) for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost")),
        *(("0.0.0.0", given) for given in (("--api-key", "a"), ("--keys-file", "keys"), ("--insecure",))),
    ],
)
def test_on_loopback_and_with_keys_or_insecure_the_lead_listens(host, given):
    assert settings("--host", host, *given).host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.20", "gpu-box"])
def test_other_addresses_require_keys(host, refused):
    said = refused("--host", host)
    assert said.count("\n") == 1
    assert "openssl rand" in said
    assert "--insecure" in said


@pytest.mark.parametrize("given", ["--ssl-cert-file", "--ssl-key-file"])
def test_a_certificate_requires_its_key(given, refused):
    assert "HTTPS needs both --ssl-cert-file and --ssl-key-file" in refused(given, "file.pem")


def test_short_keys_are_named_and_not_shown(caplog):
    settings("--api-key", "1234", "--admin-key", "0123456789abcdef").security.keyring()
    (warning,) = caplog.messages
    assert "short keys can be guessed (client client-1" in warning
    assert "admin" not in warning
    assert "1234" not in warning
