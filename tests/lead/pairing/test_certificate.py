"""The lead makes a certificate once, and only its owner can read the key."""

import ssl
import stat

import pytest

from lead.pairing.certificate import server_context
from shared.errors import ConfigError
from shared.tls import trusting_only
from tests.certificates import shake_hands


def test_it_is_made_once_and_kept(tmp_path):
    _, certificate = server_context(tmp_path / "lead")
    _, again = server_context(tmp_path / "lead")
    assert again == certificate


def test_only_the_owner_can_read_it(tmp_path):
    server_context(tmp_path / "lead")
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "lead").iterdir()} == {0o600}
    assert stat.S_IMODE((tmp_path / "lead").stat().st_mode) == 0o700


def test_who_has_it_trusts_it_under_any_name(tmp_path):
    context, certificate = server_context(tmp_path)
    shake_hands(trusting_only(certificate), context, "whatever")


def test_who_has_another_one_does_not(tmp_path):
    context, _ = server_context(tmp_path / "one")
    _, other = server_context(tmp_path / "another")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(trusting_only(other), context, "whatever")


@pytest.mark.parametrize("folder", ["lead", "lead/key.pem/x"], ids=["a damaged key", "no folder"])
def test_what_cannot_be_kept_is_an_error(tmp_path, folder):
    server_context(tmp_path / "lead")
    (tmp_path / "lead" / "key.pem").write_text("no key")
    with pytest.raises(ConfigError, match="cannot keep a certificate"):
        server_context(tmp_path / folder)
