"""All middlewares between the network and the routes, in their order."""

from dataclasses import dataclass, field

from starlette.middleware import Middleware

from lead.http.middleware.access_log import AccessLogMiddleware
from lead.http.middleware.auth import AuthMiddleware
from lead.http.middleware.cors import AllowedOrigins, WebSocketOriginMiddleware
from lead.http.middleware.head import HeadMiddleware
from lead.http.middleware.hosts import AllowedHosts, AllowedHostsMiddleware
from lead.http.middleware.keys import Keyring
from lead.settings.limits import RequestLimits


@dataclass(frozen=True, slots=True)
class MiddlewareStack:
    """What the middlewares are configured with. The default allows everything, as on a loopback address."""

    keys: Keyring = field(default_factory=Keyring)
    limits: RequestLimits = field(default_factory=RequestLimits)
    hosts: AllowedHosts | None = None  # None: any name
    origins: AllowedOrigins = field(default_factory=AllowedOrigins)

    def middlewares(self) -> list[Middleware]:
        """The outermost first."""
        return [
            Middleware(AccessLogMiddleware),
            Middleware(HeadMiddleware),
            *([Middleware(AllowedHostsMiddleware, hosts=self.hosts)] if self.hosts else []),
            *([self.origins.cors()] if self.origins else []),  # before auth: preflight requests carry no key
            Middleware(WebSocketOriginMiddleware, origins=self.origins),
            Middleware(AuthMiddleware, keys=self.keys),
        ]
