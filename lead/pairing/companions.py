"""The companions of pairing: they run the pairing port, for members, and the announcement on the local
network.
"""

import asyncio
import logging
from contextlib import ExitStack

from platformdirs import user_data_path

from lead.pairing.pairing_server import PairingServer
from lead.server.site import Companion, Site
from lead.settings.keys import Role
from shared.errors import ConfigError
from shared.pairing.discovery import announced

log = logging.getLogger("lead")

_LAST_PORT = 65535


def companions(site: Site) -> list[Companion]:
    found: list[Companion] = []
    if pairing := _pairing_server(site):
        found.append(pairing)
    if site.settings.announce:
        found.append(_Announcement(site))
    return found


def _pairing_server(site: Site) -> PairingServer | None:
    """Return the pairing server at the port after the lead's; None if the members cannot be read."""
    port = site.address.port
    folder = user_data_path("llama-duo") / f"lead-{port}"
    try:
        pairing = PairingServer(
            folder,
            port + 1 if port < _LAST_PORT else port - 1,
            site.server,
            back_command=site.settings.back_command,
        )
    except ConfigError as error:
        log.error("invitations are off: %s", error)  # noqa: TRY400 - a sentence for a person
        return None
    site.app.state.pairing = pairing
    site.app.state.has_joined_backs = lambda: any(each.role is Role.BACK for each in pairing.members)
    return pairing


class _Announcement:
    """Announces the served model on the local network (`--announce`)."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._announced = ExitStack()

    async def start(self) -> None:
        address, scheme = self._site.address, self._site.settings.security.scheme
        announcement = announced(address.host, address.port, self._site.name, scheme)
        await asyncio.to_thread(self._announced.enter_context, announcement)

    async def end(self) -> None:
        await asyncio.to_thread(self._announced.close)
