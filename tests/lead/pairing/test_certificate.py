import datetime as dt
import ssl
import stat

import pytest
from cryptography import x509

from lead.pairing import certificate as module
from lead.pairing.certificate import Authority
from shared.errors import ConfigError
from shared.pairing.invitation import fingerprint
from shared.tls import trusting_only
from tests.certificates import shake_hands

HOSTS = ["desk", "desk.local", "192.168.1.5", "fd00::5"]


@pytest.fixture
def make(tmp_path):
    """Makes CAs in a folder, as starts of one lead do."""
    return lambda hosts=HOSTS, folder="lead": Authority(tmp_path / folder, hosts)


def browser(authority):
    """The TLS context of a program on a system that trusts the CA."""
    return ssl.create_default_context(cadata=authority.certificate)


def test_it_is_made_once_and_kept(make):
    assert make().certificate == make().certificate


def test_only_the_owner_can_read_its_files(make, tmp_path):
    make()
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "lead").iterdir()} == {0o600}
    assert stat.S_IMODE((tmp_path / "lead").stat().st_mode) == 0o700


@pytest.mark.parametrize("host", HOSTS)
def test_who_trusts_it_trusts_the_lead_under_its_names_and_addresses(make, host):
    authority = make()
    shake_hands(browser(authority), authority.context, host)


def test_and_under_no_other(make):
    authority = make()
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake_hands(browser(authority), authority.context, "192.168.1.6")


@pytest.mark.parametrize("host", ["bank.example", "desk.example", "shop.desk", "8.8.8.8", "2001:db8::1"])
def test_nothing_that_it_signs_for_others_is_trusted(make, monkeypatch, host):
    """A thief may have its key."""
    known = browser(make())
    monkeypatch.setattr(module, "_permits", lambda *_: True)
    thief = make([host])
    with pytest.raises(ssl.SSLCertVerificationError, match=r"(permitted|excluded) subtree violation"):
        shake_hands(known, thief.context, host)


def test_a_lead_with_another_address_by_dhcp_is_trusted_still(make):
    authority = make()
    known = browser(authority)
    authority.renew(["desk", "192.168.1.77"])
    shake_hands(known, authority.context, "192.168.1.77")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(known, authority.context, "192.168.1.5")


def test_a_further_name_takes_another_certificate_with_the_same_key(make):
    before, after = make(), make([*HOSTS, "desk.example.org", "203.0.113.5"])
    assert before.certificate != after.certificate
    assert fingerprint(before.certificate) == fingerprint(after.certificate)
    for host in ("desk.example.org", "203.0.113.5", "192.168.1.5"):
        shake_hands(browser(after), after.context, host)


def test_a_lead_that_has_its_former_name_again_keeps_its_ca(make):
    """A laptop may have a different name in each network."""
    make(["desk.home.example"])
    away = make(["desk.work.example"])
    assert make(["desk.home.example"]).certificate == away.certificate


def test_only_so_many_former_names_are_kept(make):
    for i in range(40):
        authority = make([f"desk-{i}"])
    known = x509.load_pem_x509_certificate(authority.certificate.encode())
    limits = known.extensions.get_extension_for_class(x509.NameConstraints).value
    names = [each.value for each in limits.permitted_subtrees if isinstance(each, x509.DNSName)]
    assert names == [f"desk-{i}" for i in range(39, 22, -1)]


def test_who_has_pinned_it_trusts_it_under_any_name_and_at_any_time(make, monkeypatch):
    authority = make()
    monkeypatch.setattr(module, "_SERVER_LIFE", dt.timedelta(0))
    authority.renew(["desk"])
    shake_hands(trusting_only(authority.certificate), authority.context, "whatever")


def test_who_has_pinned_another_one_does_not(make):
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(trusting_only(make(folder="another").certificate), make().context, "whatever")


def test_the_servers_certificate_is_renewed_before_it_ends(make, tmp_path, monkeypatch):
    def serial():
        return x509.load_pem_x509_certificate((tmp_path / "lead" / "server.pem").read_bytes()).serial_number

    make()
    first = serial()
    make()
    assert serial() == first
    monkeypatch.setattr(module, "_RENEWED_BEFORE", dt.timedelta(days=397))
    make()
    assert serial() != first


def test_apple_accepts_how_long_it_lasts(make, tmp_path):
    make()
    served = x509.load_pem_x509_certificate((tmp_path / "lead" / "server.pem").read_bytes())
    assert served.not_valid_after_utc - served.not_valid_before_utc <= dt.timedelta(days=825)


def test_a_name_that_is_none_of_dns_is_left_out(make):
    authority = make(["my desk", "-", "desk"])
    shake_hands(browser(authority), authority.context, "desk")


@pytest.mark.parametrize("folder", ["lead", "lead/key.pem/x"], ids=["a damaged key", "no folder"])
def test_what_cannot_be_kept_is_an_error(make, tmp_path, folder):
    make()
    (tmp_path / "lead" / "key.pem").write_text("no key")
    with pytest.raises(ConfigError, match="cannot keep a certificate"):
        make(folder=folder)
