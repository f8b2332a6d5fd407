"""Assembles an HTTP application: routes, middleware and error handling."""

import sys
from collections.abc import Iterable
from typing import TypedDict, Unpack

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from lead.engine_client.terminal_writer import shares_terminal
from lead.http import error_responses, page
from lead.http.client_gone import ClientGoneError
from lead.http.json_route import BodyReader
from lead.http.middleware.access_log import AccessLogMiddleware
from lead.http.middleware.auth import AuthMiddleware, public_routes
from lead.http.middleware.hosts import AllowedHostsMiddleware, AllowedOrigins, OriginMiddleware
from lead.settings.host_names import AllowedHosts
from lead.settings.keys import Keyring
from lead.settings.lead_settings import LeadSettings
from lead.settings.limits import RequestLimits

_CLIENT_CLOSED_REQUEST = 499  # nginx's code, for the log: the response is not read


class HttpOptions(TypedDict, total=False):
    """Options of the HTTP server.

    Without `keys`, `hosts` and `origins`, any client may use everything, as on a loopback address.
    """

    keys: Keyring | None
    limits: RequestLimits
    hosts: AllowedHosts | None
    origins: AllowedOrigins
    with_page: bool
    shows_answers: bool


def http_options(settings: LeadSettings, keys: Keyring) -> HttpOptions:
    """Return the options of the HTTP server from the command line."""
    return {
        "keys": keys,
        "limits": settings.request_limits,
        "hosts": settings.security.host_names(settings.host),
        "origins": AllowedOrigins(settings.security.cors_origins),
        "with_page": settings.ui,
        "shows_answers": shows_answers(settings),
    }


def shows_answers(settings: LeadSettings) -> bool:
    """Return whether the terminal that shows the log shows answers, too."""
    return settings.printing != "none" and shares_terminal(sys.stdout, sys.stderr)


def application(routers: Iterable[APIRouter], **options: Unpack[HttpOptions]) -> FastAPI:
    """Return an application with these routers. For equal paths, the page wins, then the earlier router."""
    keys, origins = options.get("keys") or Keyring(), options.get("origins") or AllowedOrigins()
    hosts, with_page = options.get("hosts"), options.get("with_page", True)
    public = public_routes(with_page=with_page)
    app = FastAPI(
        title="llama-duo",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect is written from the Host header, which a client chooses
        middleware=[  # the outermost first
            Middleware(AccessLogMiddleware, shows_answers=options.get("shows_answers", False)),
            Middleware(HeadMiddleware),
            *([Middleware(AllowedHostsMiddleware, hosts=hosts)] if hosts else []),
            *([origins.cors()] if origins else []),  # before auth: preflight requests carry no key
            Middleware(OriginMiddleware, origins=origins, has_keys=bool(keys), public=public),
            Middleware(AuthMiddleware, keys=keys, public=public),
        ],
    )
    app.state.is_leaving = False
    app.state.with_page = with_page
    app.state.bodies = BodyReader(options.get("limits") or RequestLimits())
    error_responses.install(app)

    async def on_gone(_: Request, _error: Exception) -> Response:
        return Response(status_code=_CLIENT_CLOSED_REQUEST)

    app.add_exception_handler(ClientGoneError, on_gone)
    for router in (*([page.router] if with_page else []), *routers):
        app.include_router(router)
    return app


class HeadMiddleware:
    """Answers HEAD wherever GET is answered, with the same authorization.

    FastAPI's routes answer only the methods that they name. uvicorn sends no body, because it sees the
    client's method.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)
