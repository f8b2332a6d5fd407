import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import ConfigError
from shared.pairing.invitation import Invitation

ADDRESSES = ("192.168.1.5:5556", "[fd00::5]:5556", "desk.tail.net:5556")
INVITATION = Invitation("back", b"s" * 12, b"f" * 16, ADDRESSES)


def test_a_code_holds_addresses_fingerprint_and_secret():
    assert Invitation.parse(INVITATION.code()) == INVITATION


def test_a_code_says_for_which_role_it_is():
    other = dataclasses.replace(INVITATION, role="client")
    assert Invitation.parse(other.code()) == other
    with pytest.raises(ConfigError, match="code is incomplete or has a typo"):
        Invitation.parse(INVITATION.code().replace("duo3b", "duo3c"))


def test_a_code_may_be_wrapped_by_a_terminal():
    code = INVITATION.code()
    assert Invitation.parse(f" {code[:20]}\n  {code[20:]}\n") == INVITATION


@given(st.data())
def test_a_code_with_a_wrong_or_missing_character_is_refused(data):
    code = INVITATION.code()
    at = data.draw(st.integers(0, len(code) - 2))  # the last one has bits that mean nothing
    other = data.draw(st.sampled_from(["", "A", "B", "_", "é"]).filter(lambda each: each != code[at]))
    with pytest.raises(ConfigError, match="code is incomplete or has a typo"):
        Invitation.parse(code[:at] + other + code[at + 1 :])


@pytest.mark.parametrize("prefix", ["\udcff" * 5, "duo1b", ""])
def test_a_code_begins_as_codes_do(prefix):
    """In arguments, bytes that are not UTF-8 are lone surrogates."""
    with pytest.raises(ConfigError, match="code is incomplete or has a typo"):
        Invitation.parse(prefix + INVITATION.code()[5:])


@given(st.text(max_size=200))
def test_no_other_text_is_a_code(text):
    with pytest.raises(ConfigError, match="code is incomplete or has a typo"):
        Invitation.parse(text)


def test_a_code_may_be_without_address():
    invitation = Invitation("back", b"s" * 12, b"f" * 16, ())
    assert Invitation.parse(invitation.code()) == invitation
    assert len(invitation.code()) == 45
