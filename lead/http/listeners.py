"""Further listeners beside the lead's own address, with keys of their own."""

from typing import Protocol

from starlette.types import Scope

from lead.settings.keys import Principal

OWN_KEYS = "own_keys"
"""The name in the state of each request that came in at such a listener. Its value is an `Identifies`."""


class Identifies(Protocol):
    def identify(self, secret: str | None) -> Principal | None:
        """See `lead.settings.keys.Keyring`."""


def own_keys(scope: Scope) -> Identifies | None:
    """Who may ask where this request came in; None: it came in at the lead's own address."""
    found: Identifies | None = scope.get("state", {}).get(OWN_KEYS)
    return found
