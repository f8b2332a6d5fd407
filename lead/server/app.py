"""The lead's HTTP application."""

from fastapi import FastAPI

from lead.http.application import application
from lead.http.middleware.hosts import AllowedOrigins
from lead.http.routes import (
    chat,
    completions,
    invitations,
    models,
    monitoring,
    ollama_api,
    saved_slots,
    speculation,
    tokens,
)
from lead.http.services import Services
from lead.settings.host_names import AllowedHosts
from lead.settings.keys import Keyring
from lead.settings.limits import RequestLimits

_MODULES = (chat, completions, tokens, models, monitoring, saved_slots, speculation, invitations, ollama_api)


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
    app = application(
        (module.router for module in _MODULES),
        keys=keys,
        limits=limits,
        hosts=hosts,
        origins=origins,
        with_page=with_page,
    )
    app.state.services = services
    return app
