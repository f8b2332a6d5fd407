"""Companions of the server of a lead or a router: a seam for rings."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from fastapi import FastAPI

from lead.rings.table import RINGS
from lead.server.draining import DrainingServer
from lead.server.listening import Address
from lead.settings.lead_settings import LeadSettings
from shared.seams import plugged


class Companion(Protocol):
    async def start(self) -> None:
        """Called once the program has its address. What it raises ends the program."""

    async def end(self) -> None:
        """Called when the program ends, also before `start`."""


@dataclass(frozen=True)
class Site:
    """The server that companions run beside. name: what is served there."""

    app: FastAPI
    server: DrainingServer
    settings: LeadSettings
    address: Address
    name: str


def companions_of(site: Site) -> list[Companion]:
    """The companions of all rings; the application may use them even before they start."""
    return [each for module in plugged(RINGS, "companions") for each in module.companions(site)]


async def end_all(companions: Iterable[Companion]) -> None:
    """End all companions, even if one of them fails to."""
    await asyncio.gather(*(each.end() for each in companions), return_exceptions=True)
