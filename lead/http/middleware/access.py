"""Who may do what: decided here, before any route is looked at."""

from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from lead.http.errors import http_error
from lead.http.middleware.keys import Keyring, Principal, Role
from lead.http.page import FILES

WEBSOCKET = "WEBSOCKET"
"""Stands where HTTP has a method."""

PUBLIC = frozenset({"/health", "/v1/health", *FILES})
"""Load balancers and container runtimes have no key; a browser has none before it has the page that asks."""

_USUAL = frozenset({Role.CLIENT})
_ROLES: Mapping[tuple[str, str], frozenset[Role]] = {
    (WEBSOCKET, "/v1/speculation"): frozenset({Role.BACK}),
    ("POST", "/v1/speculation"): frozenset({Role.BACK}),
    ("GET", "/v1/speculation"): frozenset({Role.CLIENT, Role.BACK}),  # figures, no text: for `back doctor`
    ("PUT", "/v1/speculation"): frozenset(),
}
"""What is not for clients, by method and path. An admin may do everything."""


class Access:
    """Middleware that lets a request through if its key allows it: everything not public needs one.

    It decides on `scope["path"]`, the path that routing uses too, and not on a route, so that a new route is
    protected from its first day and nobody finds out without a key which paths there are. A route finds out
    who asks in `request.state.principal`.
    """

    def __init__(self, app: ASGIApp, keys: Keyring) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in PUBLIC:
            await self._app(scope, receive, send)
            return
        principal = self._keys.identify(presented_key(Headers(scope=scope)))
        if principal is None:
            refusal = http_error(
                401,
                "Invalid API Key: send one as `Authorization: Bearer KEY` or `x-api-key: KEY`",
                "authentication_error",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
            await refusal(scope, receive, send)
            return
        scope.setdefault("state", {})["principal"] = principal
        if not may(principal, scope):
            refusal = http_error(403, _explain(principal, scope), "permission_error")
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)


def roles(method: str, path: str) -> frozenset[Role]:
    """Who, besides admins, may use `method` on `path`."""
    return _ROLES.get((method, path), _USUAL)


def may(principal: Principal, scope: Scope) -> bool:
    """Whether `principal` may do what `scope` asks for."""
    return principal.role is Role.ADMIN or principal.role in roles(_method(scope), scope["path"])


def presented_key(headers: Headers) -> str | None:
    """The key that a request brings, in OpenAI's way or in Anthropic's; None if it brings none."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and credentials:
        return credentials.strip()
    return headers.get("x-api-key")


def _method(scope: Scope) -> str:
    return WEBSOCKET if scope["type"] == "websocket" else str(scope["method"])


def _explain(principal: Principal, scope: Scope) -> str:
    needed = " or ".join(sorted(role.value for role in roles(_method(scope), scope["path"]) | {Role.ADMIN}))
    return f"this key has the role {principal.role.value}; here one with the role {needed} is needed"
