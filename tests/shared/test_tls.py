"""Certificates made during the test. `trustme` is an authority for tests."""

import ssl

import pytest
import trustme

from shared.errors import ConfigError
from shared.tls import check_certificate, pinning, trusting, trusting_nothing
from shared.tls_failures import distrust_behind, explain_distrust
from tests import certificates
from tests.certificates import make_certificate


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority, tmp_path_factory):
    """The paths of (certificate, key, authority's certificate) of a server called gpu-box."""
    made = make_certificate(tmp_path_factory.mktemp("tls"), "gpu-box", authority=authority)
    return made.chain, made.key, made.authority


def shake_hands(context, files, name):
    """Let a client with `context` greet a server with these files under `name`. Raises SSLError."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files[0], files[1])
    certificates.shake_hands(context, server, name)


def test_a_server_of_the_authority_is_trusted_under_its_name(files):
    shake_hands(trusting(files[2]), files, "gpu-box")


def test_who_trusts_nobody_does_not_trust_the_system_s_authorities():
    assert trusting_nothing().get_ca_certs() == []
    assert trusting_nothing().verify_mode is ssl.CERT_REQUIRED


def test_a_pinned_certificate_is_trusted_under_any_name(files):
    shake_hands(pinning(files[0]), files, "127.0.0.1")


def test_another_certificate_than_the_pinned_one_is_not(files, authority, tmp_path):
    issued = authority.issue_cert("gpu-box")
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "other.pem"))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(pinning(tmp_path / "other.pem"), files, "127.0.0.1")


def test_who_signed_the_pinned_certificate_is_not_trusted(tmp_path):
    """The signer's certificate follows the server's own in a chain. It has signed other certificates, too."""
    between = trustme.CA().create_child_ca()
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
    pinned = make_certificate(own, "gpu-box", authority=between)
    stranger = make_certificate(other, "gpu-box", authority=between)
    shake_hands(pinning(pinned.chain), (pinned.chain, pinned.key), "gpu-box")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(pinning(pinned.chain), (stranger.chain, stranger.key), "gpu-box")


def test_a_file_without_a_certificate_cannot_be_pinned(files):
    with pytest.raises(ConfigError, match=r"key.pem contains no certificate \(PEM\)"):
        pinning(files[1])


@pytest.mark.parametrize(
    ("authority_file", "name", "advice"),
    [(None, "gpu-box", "--ca-file"), (2, "127.0.0.1", "--lead"), (2, "other-box", "--lead")],
)
def test_it_is_said_what_to_do_about_a_certificate(files, authority_file, name, advice):
    context = trusting(None if authority_file is None else files[authority_file])
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        shake_hands(context, files, name)
    said = explain_distrust(caught.value)
    assert advice in said
    assert not said.endswith(".")


@pytest.mark.parametrize("code", [9, 10])
def test_an_expired_certificate_is_explained_without_a_way_to_trust_it(code):
    error = ssl.SSLCertVerificationError()
    error.verify_code, error.verify_message = code, "certificate has expired"
    assert explain_distrust(error) == (
        "certificate has expired. Renew the certificate, or correct the clock of this machine"
    )


def test_distrust_is_found_behind_what_libraries_make_of_it():
    distrust = ssl.SSLCertVerificationError("no")
    away, broken = OSError("away"), RuntimeError("broken")
    away.__cause__, broken.__context__ = distrust, away
    assert distrust_behind(broken) is distrust
    assert distrust_behind(OSError("away")) is None


def test_one_without_its_key_cannot(files, authority, tmp_path):
    authority.issue_cert("x").private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    with pytest.raises(ConfigError, match=r"cannot serve TLS with .*key values mismatch"):
        check_certificate(files[0], tmp_path / "key.pem")


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file"), (b"junk", ".")])
def test_what_cannot_be_read_is_named(files, tmp_path, content, reason):
    path = tmp_path / "some.pem"
    if content:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"some.pem.*{reason}"):
        trusting(path)
    with pytest.raises(ConfigError, match=f"some.pem.*{reason}"):
        check_certificate(path, files[1])
