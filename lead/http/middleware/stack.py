"""All middlewares between the network and the routes, in their order."""

from dataclasses import dataclass, field

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from lead.http.middleware.access_log import AccessLogMiddleware
from lead.http.middleware.auth import AuthMiddleware
from lead.http.middleware.hosts import (
    AllowedHosts,
    AllowedHostsMiddleware,
    AllowedOrigins,
    WebSocketOriginMiddleware,
)
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


class HeadMiddleware:
    """Answers HEAD wherever GET is answered, for the same keys.

    FastAPI's routes answer only the methods that they name. uvicorn sends no body, as it sees the method that
    the client has sent.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)
