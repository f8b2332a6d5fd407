"""The lead's HTTP application."""

from typing import Unpack

from fastapi import FastAPI

from lead.http.application import HttpOptions, application
from lead.http.routes import chat, completions, models, monitoring, speculation, tokens
from lead.http.services import Services
from lead.rings.table import RINGS
from shared.seams import plugged

_OF_THE_CORE = (chat, completions, tokens, models, monitoring, speculation)


def create_app(services: Services | None = None, **options: Unpack[HttpOptions]) -> FastAPI:
    """Return the lead's `application`.

    Until `app.state.services` is set, all routes, /health among them, answer 503.
    """
    modules = *_OF_THE_CORE, *plugged(RINGS, "model_routes"), *plugged(RINGS, "routes")
    app = application((module.router for module in modules), **options)
    app.state.services = None
    if services:
        open_services(app, services)
    return app


def open_services(app: FastAPI, services: Services) -> None:
    """Start answering requests, once the vocabulary has been read."""
    for module in plugged(RINGS, "opened"):
        module.opened(app, services)
    app.state.services = services
