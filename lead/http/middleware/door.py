"""The door as a whole: which middlewares stand before the routes, in which order."""

from dataclasses import dataclass, field

from starlette.middleware import Middleware

from lead.http.middleware.access import Access
from lead.http.middleware.bodies import Bodies
from lead.http.middleware.hosts import HostNames, Hosts
from lead.http.middleware.keys import Keyring
from lead.http.middleware.origins import Origins, WebSocketOrigins
from lead.http.middleware.request_log import RequestLog
from lead.settings.limits import Bounds


@dataclass(frozen=True, slots=True)
class Door:
    """What the middlewares work with. The default lets everybody in: for tests and for a lead on loopback."""

    keys: Keyring = field(default_factory=Keyring)
    bounds: Bounds = field(default_factory=Bounds)
    hosts: HostNames | None = None  # None: any name
    origins: Origins = field(default_factory=Origins)

    def middlewares(self) -> list[Middleware]:
        """From the network inwards."""
        return [
            Middleware(RequestLog),
            *([Middleware(Hosts, names=self.hosts)] if self.hosts else []),
            *([self.origins.cors()] if self.origins else []),  # before the keys: a browser asks without one
            Middleware(WebSocketOrigins, origins=self.origins),
            Middleware(Access, keys=self.keys),
            Middleware(Bodies, bounds=self.bounds),
        ]
