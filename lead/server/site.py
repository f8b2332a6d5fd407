"""Companions: services of rings that run beside the server of a lead or router."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from fastapi import FastAPI

from lead.rings.table import RINGS
from lead.server.draining import DrainingServer
from lead.server.listening import Address
from lead.server.local_back import local_url
from lead.settings.lead_settings import LeadSettings
from shared.seams import plugged


class Companion(Protocol):
    async def start(self) -> None:
        """Start the service, after the program has its address. An exception ends the program."""

    async def end(self) -> None:
        """End the service; called when the program ends, even if `start` was not called."""


@dataclass(frozen=True)
class Site:
    """The server beside which companions run. name: the name of its model."""

    app: FastAPI
    server: DrainingServer
    settings: LeadSettings
    address: Address
    name: str


def how_to_ask(settings: LeadSettings, address: Address) -> str:
    """Return a sentence with the URLs of the web UI and of the API on this machine."""
    url = local_url(address.host, address.port, tls=settings.security.https)
    page = f"open {url}/ in a browser; " if settings.ui else ""
    return f"{page}OpenAI's API: {url}/v1"


def wants_backs(app: FastAPI, settings: LeadSettings) -> bool:
    """Return whether nothing drafts: no back is connected or has joined before, and none is in the options.

    A ring that knows of backs sets `app.state.has_joined_backs`.
    """
    if settings.own_back.is_wanted or settings.drafting.is_wanted:
        return False
    has_joined_backs: Callable[[], bool] = getattr(app.state, "has_joined_backs", lambda: False)
    return not has_joined_backs() and not any(app.state.services.backs)


def companions_of(site: Site) -> list[Companion]:
    """Return the companions of all rings; the application may use them even before they start."""
    return [each for module in plugged(RINGS, "companions") for each in module.companions(site)]


async def end_all(companions: Iterable[Companion]) -> None:
    """End all companions, even if ending one of them fails."""
    await asyncio.gather(*(each.end() for each in companions), return_exceptions=True)
