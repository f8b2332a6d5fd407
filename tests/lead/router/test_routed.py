"""A lead behind a router believes only the router's word on the sender."""

import socket

import pytest

from lead.router.routed import RoutedBy, forwarding_key
from lead.settings.keys import ANYONE, Key, Principal, Role

SENDER = Principal(Role.CLIENT, "anna", 3, "ab12")


@pytest.fixture
def keyring():
    with socket.socket() as listener:
        return RoutedBy(listener, "the-secret").keyring([Key(Principal(Role.BACK, "local"), "own-key")])


@pytest.mark.parametrize("sender", [SENDER, ANYONE, Principal(Role.BACK, "ä.b", 1, "")])
def test_the_router_says_who_has_sent_a_request(keyring, sender):
    found = keyring.identify(forwarding_key("the-secret", sender))
    assert (found, found.number, found.id) == (sender, sender.number, sender.id)


def test_its_own_back_has_a_key_of_its_own(keyring):
    assert keyring.identify("own-key").name == "local"


@pytest.mark.parametrize(
    "key",
    [
        None,
        "",
        "the-secret",
        "the-secret.",
        "the-secret.e30=",
        "the-secret.!",
        forwarding_key("another", SENDER),
    ],
)
def test_everybody_else_is_unknown(keyring, key):
    assert keyring.identify(key) is None
