"""A lead that serves one model for a router (`lead.router`), and accepts requests only from this router."""

import base64
import hmac
import json
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from lead.settings.keys import Key, Keyring, Principal, Role

_SEPARATOR = "."


@dataclass(frozen=True, slots=True)
class RoutedBy:
    """The router of this lead. listener: the socket that it connects to. secret: its key."""

    listener: socket.socket
    secret: str

    def keyring(self, own: Iterable[Key]) -> Keyring:
        """Return the keyring of a routed lead: the router's key, and the keys `own`."""
        return RoutersKeyring(self.secret, own)


class RoutersKeyring(Keyring):
    """A keyring that trusts the router to name the sender of a request, whose key the router has checked."""

    def __init__(self, secret: str, own: Iterable[Key]) -> None:
        """own: at least one key; without keys, a keyring would accept any request."""
        super().__init__(own)
        assert len(self)
        self._secret = secret

    def identify(self, secret: str | None) -> Principal | None:
        """Return the principal with this key (`Keyring`); for the router's key, the sender that the router
        names.
        """
        shown, _, sender = (secret or "").partition(_SEPARATOR)
        if hmac.compare_digest(shown.encode(), self._secret.encode()):
            return _read_principal(sender)
        return super().identify(secret)


def forwarding_key(secret: str, sender: Principal) -> str:
    """Return the key with which a router forwards a request of `sender`; `secret` must not contain a dot."""
    fields = [sender.role.value, sender.name, sender.number, sender.key]
    return secret + _SEPARATOR + base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()


def _read_principal(text: str) -> Principal | None:
    try:
        role, name, number, key = json.loads(base64.urlsafe_b64decode(text))
        return Principal(Role(role), name, number, key)
    except (ValueError, TypeError):
        return None
