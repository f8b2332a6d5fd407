"""Host and Origin headers: which names requests may use, and which web pages may send them.

A page that has pointed its own name at this machine (DNS rebinding) sends a Host header with that name.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from lead.http.error_responses import http_error

_HOST = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::\d*)?")
"""RFC 9112, section 3.2: a name or an address, and an optional port."""


class AllowedHosts:
    """The names that Host headers may have. IP addresses are always allowed: DNS cannot redirect them."""

    def __init__(self, names: Iterable[str]) -> None:
        """Each is a name, `*.name` for all names below it, or `*` for any."""
        wanted = {name.lower() for name in names}
        self._names = {name for name in wanted if not name.startswith("*")}
        self._suffixes = tuple(name[1:] for name in wanted if name.startswith("*"))

    def allows(self, host: str) -> bool:
        """Whether to serve a request with this Host header; without one it does not come from a browser."""
        match = _HOST.fullmatch(host.strip().lower())
        if match is None:
            return False
        name = match[1]
        address = name.removeprefix("[").removesuffix("]")
        return not host or _is_address(address) or name in self._names or name.endswith(self._suffixes)


class AllowedHostsMiddleware:
    """Answers 403 to requests for other hosts. Starlette's own answers in plain text and without a hint."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            host = Headers(scope=scope).get("host", "")
            if not self._hosts.allows(host):
                message = f"{host!r} is not an allowed host name of this server: see --allowed-hosts"
                await http_error(403, message, "permission_error")(scope, receive, send)
                return
        await self._app(scope, receive, send)


def machine_names(bound: str) -> set[str]:
    """The names of this machine, and `bound`, the address or name that the server listens on."""
    machine = socket.gethostname()
    return {"localhost", "*.localhost", bound, machine, f"{machine}.local"}


def is_loopback(host: str) -> bool:
    """Whether a server that listens on `host` can be reached only from this machine; False if unsure."""
    return host.lower() == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


_LOOPBACK = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
_METHODS = ("GET", "POST", "DELETE", "OPTIONS")
_EXPOSED = ("X-Request-Id", "Retry-After")


class AllowedOrigins:
    """The origins whose pages are allowed: some, `localhost` for all pages of this machine, or `*`."""

    def __init__(self, origins: Iterable[str] = ()) -> None:
        self._origins = [origin.rstrip("/") for origin in origins]
        self._pattern = _LOOPBACK if "localhost" in self._origins else None

    def __bool__(self) -> bool:
        return bool(self._origins)

    def allow(self, origin: str) -> bool:
        if "*" in self._origins or origin in self._origins:
            return True
        return self._pattern is not None and re.fullmatch(self._pattern, origin) is not None

    def cors(self) -> Middleware:
        """The CORS headers for browsers. Keys are sent in headers, so credentials (cookies) stay off."""
        return Middleware(
            CORSMiddleware,
            allow_origins=self._origins,
            allow_origin_regex=self._pattern,
            allow_methods=_METHODS,
            allow_headers=("*",),
            expose_headers=_EXPOSED,
        )


class WebSocketOriginMiddleware:
    """Answers 403 to WebSockets of other origins: CORS does not cover them. Backs send no origin."""

    def __init__(self, app: ASGIApp, origins: AllowedOrigins) -> None:
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            origin = Headers(scope=scope).get("origin")
            if origin is not None and not self._origins.allow(origin):
                message = f"pages of {origin!r} are not allowed to connect: see --cors-origins"
                await http_error(403, message, "permission_error")(scope, receive, send)
                return
        await self._app(scope, receive, send)
