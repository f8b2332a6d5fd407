"""The lead's HTTP application."""

from fastapi import FastAPI

from lead.http.application import application
from lead.http.middleware.hosts import AllowedOrigins
from lead.http.routes import chat, completions, models, monitoring, speculation, tokens
from lead.http.services import Services
from lead.rings.table import RINGS
from lead.settings.host_names import AllowedHosts
from lead.settings.keys import Keyring
from lead.settings.limits import RequestLimits
from shared.seams import plugged

_OF_THE_CORE = (chat, completions, tokens, models, monitoring, speculation)


def create_app(
    services: Services | None = None,
    *,
    keys: Keyring | None = None,
    limits: RequestLimits | None = None,
    hosts: AllowedHosts | None = None,
    origins: AllowedOrigins | None = None,
    with_page: bool = True,
) -> FastAPI:
    """See `application`. Until `app.state.services` is set, /health and all else answer 503."""
    modules = *_OF_THE_CORE, *plugged(RINGS, "model_routes"), *plugged(RINGS, "routes")
    app = application(
        (module.router for module in modules),
        keys=keys,
        limits=limits,
        hosts=hosts,
        origins=origins,
        with_page=with_page,
    )
    app.state.services = None
    if services:
        open_services(app, services)
    return app


def open_services(app: FastAPI, services: Services) -> None:
    """Let the application answer, once the vocabulary has been read."""
    for module in plugged(RINGS, "opened"):
        module.opened(app, services)
    app.state.services = services
