"""Host and Origin headers: which host names requests may use, and which web pages may send them.

A web page that has pointed its own host name at this machine (DNS rebinding) sends a Host header with that
name.
"""

import re
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from lead.http.error_responses import http_error
from lead.http.middleware.auth import Route, own_keys, route_of
from lead.settings.host_names import AllowedHosts


class AllowedHostsMiddleware:
    """Answers 403 to requests whose Host header has a name that is not allowed.

    Starlette's own middleware would answer in plain text and without a hint.
    """

    def __init__(self, app: ASGIApp, hosts: AllowedHosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # As with keys: a page that has pointed its own name here is no member.
        if scope["type"] != "lifespan" and not own_keys(scope):
            host = Headers(scope=scope).get("host", "")
            if not self._hosts.allows(host):
                message = f"{host!r} is not an allowed host name of this server. Add it with --allowed-hosts"
                await http_error(403, message, "permission_error")(scope, receive, send)
                return
        await self._app(scope, receive, send)


_LOOPBACK = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
_METHODS = ("GET", "POST", "DELETE", "OPTIONS")
_EXPOSED = ("X-Request-Id", "Retry-After")


class AllowedOrigins:
    """The origins whose pages may use the lead: a list, `localhost` for all pages of this machine, or `*`."""

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
        """Return the middleware for CORS headers.

        Keys are sent in headers, so pages need no permission for credentials (cookies).
        """
        return Middleware(
            CORSMiddleware,
            allow_origins=self._origins,
            allow_origin_regex=self._pattern,
            allow_methods=_METHODS,
            allow_headers=("*",),
            expose_headers=_EXPOSED,
        )


class OriginMiddleware:
    """Answers 403 to requests of web pages of other origins, unless these origins are allowed.

    CORS keeps pages from reading answers, but not from sending requests that need no permission: any GET, as
    for an image, or a POST without a body. Such requests are refused unless the route needs a key. CORS does
    not cover WebSockets at all, so a WebSocket with another origin is refused; backs send no origin.
    """

    def __init__(
        self, app: ASGIApp, origins: AllowedOrigins, *, has_keys: bool, public: frozenset[Route]
    ) -> None:
        self._app = app
        self._origins = origins
        self._has_keys = has_keys
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._is_foreign(scope):
            origin = Headers(scope=scope).get("origin")
            pages = f"pages of {origin!r}" if origin else "pages of other origins"
            message = f"{pages} are not allowed to use this server. Allow them with --cors-origins"
            await http_error(403, message, "permission_error")(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_foreign(self, scope: Scope) -> bool:
        if scope["type"] == "lifespan":
            return False
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if self._origins.allow(origin or ""):
            return False
        if scope["type"] == "websocket":
            return origin is not None
        needs_key = self._has_keys or own_keys(scope) is not None
        return not needs_key and route_of(scope) not in self._public and _is_of_another_origin(headers)


def _is_of_another_origin(headers: Headers) -> bool:
    """Return whether a browser sent the request for a page of another origin, according to the headers.

    The rule is that of Go's http.CrossOriginProtection. Browsers send Sec-Fetch-Site only over HTTPS and on
    loopback; without it, Origin must have the server's own name and port. Other programs send neither header.
    """
    if (site := headers.get("sec-fetch-site")) is not None:
        return site not in {"same-origin", "none"}
    origin = headers.get("origin")
    if origin is None:
        return False
    authority = origin.partition("://")[2]
    return not authority or authority.lower() != headers.get("host", "").lower()
