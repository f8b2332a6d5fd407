"""The door as a whole: which middlewares stand before the routes, in which order."""

from dataclasses import dataclass, field

from starlette.middleware import Middleware

from lead.bounds import Bounds
from lead.door.access import Access
from lead.door.bodies import Bodies
from lead.door.keys import Keyring


@dataclass(frozen=True, slots=True)
class Door:
    """What the middlewares work with. The default lets everybody in: for tests and for a lead on loopback."""

    keys: Keyring = field(default_factory=Keyring)
    bounds: Bounds = field(default_factory=Bounds)

    def middlewares(self) -> list[Middleware]:
        """From the network inwards."""
        return [Middleware(Access, keys=self.keys), Middleware(Bodies, bounds=self.bounds)]
