"""Authentication and authorization: which principal may use which method and path."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from lead.http.error_responses import ErrorResponse, http_error
from lead.http.middleware.guesses import KeyGuesses
from lead.http.page import FILES
from lead.settings.keys import Keyring, Principal, Role, key_digest

WEBSOCKET = "WEBSOCKET"
"""The method of a WebSocket handshake in a `Route`."""

Route = tuple[str, str]
"""(method, path); GET includes HEAD (`HeadMiddleware`)."""

HEALTH = ("/health", "/v1/health")
OWN_KEYS = "own_keys"
"""The name of an `Identifies` in a request's state, set by a listener that has keys of its own."""

_ROUTES_WITHOUT_KEY = frozenset(
    {*(("GET", path) for path in HEALTH), ("POST", "/v1/join"), ("GET", "/ca.crt")}
)
"""Routes without a key: load balancers have no key, machines that join have only a code, and the CA's
certificate is public.
"""
_ROUTES_OF_THE_PAGE = frozenset(("GET", path) for path in FILES)
"""The page's files; a browser has no key before the page has asked for it."""

_DEFAULT_ROLES = frozenset({Role.CLIENT})
_ROLES: Mapping[tuple[str, str], frozenset[Role]] = {
    (WEBSOCKET, "/v1/speculation"): frozenset({Role.BACK}),
    ("POST", "/v1/speculation"): frozenset({Role.BACK}),
    ("GET", "/v1/speculation"): frozenset({Role.CLIENT, Role.BACK}),  # statistics, no text: `back doctor`
    ("GET", "/v1/speculation/vocabulary"): frozenset({Role.CLIENT, Role.BACK}),  # for backs of another one
    ("PUT", "/v1/speculation"): frozenset(),
    ("POST", "/v1/invitations"): frozenset(),
    ("DELETE", "/v1/invitations"): frozenset(),
    ("GET", "/v1/members"): frozenset(),
    ("POST", "/v1/members"): frozenset(),
    ("DELETE", "/v1/members"): frozenset(),
}
"""Roles that differ from the default, by method and path. Admins may use everything."""


class Identifies(Protocol):
    def identify(self, secret: str | None) -> Principal | None:
        """Return the principal with this key (`lead.settings.keys.Keyring`); None: the key is not valid."""


class AuthMiddleware:
    """Answers 401 to a request without a valid key, 429 after many wrong keys, and 403 if the key's role may
    not use the route.

    A request to the pairing port must come from a member, whatever else the lead allows. The decision depends
    on `scope["path"]`, as routing does, not on the route. So a new route is protected from the start, and
    requests without a key cannot find out which paths exist. Handlers find the principal in
    `request.state.principal`.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Keyring,
        public: frozenset[Route],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """public: the result of `public_routes`. clock: returns seconds."""
        self._app = app
        self._keys = keys
        self._public = public
        self._guesses = KeyGuesses(clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or route_of(scope) in self._public:
            await self._app(scope, receive, send)
            return
        answer = self._identify(scope)
        if isinstance(answer, ErrorResponse):
            await answer(scope, receive, send)
            return
        principal = answer
        scope.setdefault("state", {})["principal"] = principal
        allowed = allowed_roles(scope)
        if principal.role not in allowed:
            needed = " or ".join(sorted(role.value for role in allowed))
            message = (
                f"this key has the role {principal.role.value}, but this request needs the role {needed}"
            )
            await http_error(403, message, "permission_error")(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _identify(self, scope: Scope) -> Principal | ErrorResponse:
        """Return the sender of a request; without a valid key, return the error response."""
        members, secret = own_keys(scope), presented_key(Headers(scope=scope))
        if members or secret is None:  # nobody finds a member's key by trying, as the lead has made it
            return (members or self._keys).identify(secret) or without_key()
        host, digest = (scope.get("client") or ("",))[0], key_digest(secret)
        if wait := self._guesses.seconds_to_wait(host, digest):
            return _too_many_guesses(wait)
        principal = self._keys.identify(secret)
        self._guesses.note(host, digest, is_right=principal is not None)
        return principal or without_key()


def own_keys(scope: Scope) -> Identifies | None:
    """Return the keys of the address that received this request; None: the lead's own address."""
    found: Identifies | None = scope.get("state", {}).get(OWN_KEYS)
    return found


def public_routes(*, with_page: bool) -> frozenset[Route]:
    """Return the routes that need no key. with_page: the web UI is served.

    Requests to these routes have no principal. A handler that forwards requests to another process must
    itself refuse requests without a principal (`without_key`).
    """
    return _ROUTES_WITHOUT_KEY | (_ROUTES_OF_THE_PAGE if with_page else frozenset())


def route_of(scope: Scope) -> Route:
    return (WEBSOCKET if scope["type"] == "websocket" else scope["method"]), scope["path"]


def has_principal(connection: HTTPConnection) -> bool:
    """Return whether the sender of a request is authorized: by a key, or because the lead needs no keys."""
    return getattr(connection.state, "principal", None) is not None


def without_key() -> ErrorResponse:
    """Return the response to a request that needs a key and has no valid one."""
    return http_error(
        401,
        "Invalid API Key: send one as `Authorization: Bearer KEY` or `x-api-key: KEY`",
        "authentication_error",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _too_many_guesses(wait: float) -> ErrorResponse:
    return http_error(
        429,
        "too many wrong keys from this address: try again later",
        "rate_limit_error",
        headers={"Retry-After": str(math.ceil(wait))},
    )


def allowed_roles(scope: Scope) -> frozenset[Role]:
    method, path = route = route_of(scope)
    if method == "POST" and path.startswith("/slots/"):  # of others, and into files
        return frozenset({Role.ADMIN})
    return _ROLES.get(route, _DEFAULT_ROLES) | {Role.ADMIN}


def presented_key(headers: Headers) -> str | None:
    """Return the key in a request's headers, in OpenAI's or Anthropic's form; None: there is none."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and credentials:
        return credentials.strip()
    return headers.get("x-api-key")
