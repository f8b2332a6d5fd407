"""The running router: its HTTP server and the processes of its models, from start to end."""

import asyncio
import logging
import math
import time
from collections.abc import Callable

from lead.http.application import application, http_options
from lead.rings.table import RINGS
from lead.router import router_api
from lead.router.back_relay import BackRelay
from lead.router.catalog import find_models
from lead.router.forwarding import Forwarder
from lead.router.model_host import ModelHost
from lead.router.models_file import ServedModel, served_models
from lead.router.router_api import RouterServices
from lead.server.draining import DrainingServer
from lead.server.listening import open_address
from lead.server.site import Site, companions_of, end_all, how_to_ask
from lead.settings.lead_settings import LeadSettings
from shared.diagnostics.findings import count
from shared.free_memory import free_memory
from shared.model_files.hub import Hub
from shared.seams import plugged

log = logging.getLogger("models")

_MIB = 1 << 20
_CACHE_SHARE = 16
"""Without --cache-ram, a model's memory for earlier texts is the memory for all models divided by this
number.
"""


class Router:
    """The program of `lead --models-dir`."""

    def __init__(self, settings: LeadSettings) -> None:
        """Make the parts of the router; raises ConfigError if models, options or keys are wrong."""
        self._settings = settings
        room = host_room(settings.served.models_memory * _MIB)
        self._reloading = asyncio.Lock()
        self._cache_mib = room(0) // _CACHE_SHARE // _MIB
        self._host = ModelHost(
            self._find().values(),
            maximum=settings.served.models_max,
            max_waiting=settings.limits.max_queue,
            idle_seconds=settings.sleep_idle_seconds if settings.sleep_idle_seconds > 0 else math.inf,
            host_room=room,
        )
        self._forwarder = Forwarder(self._host)
        self._relay = BackRelay(self._host)
        self._host.on_change = self._relay.note_change
        of_rings = [module.router for module in plugged(RINGS, "routes")]
        self.app = application(
            (*of_rings, router_api.router, router_api.everything_else),
            **http_options(settings, settings.security.keyring()),
        )
        self.app.state.services = RouterServices(
            self._host, self._forwarder, self._relay, int(time.time()), self._reload
        )
        self._server = DrainingServer(
            self.app, settings, self._forwarder, on_drain=lambda: None, on_drained=self._host.stop
        )

    async def serve(self) -> None:
        """Serve until a signal arrives; raises ConfigError if it must not listen on its address.

        After the signal it accepts no connections, answers continue for the drain time, and all models end.
        """
        settings = self._settings
        address = open_address(settings)
        companions = companions_of(Site(self.app, self._server, settings, address, "models"))
        log.info("listening on %s://%s, with %s", settings.security.scheme, address, self._names())
        log.info("%s", how_to_ask(settings, address))
        self._host.start()
        try:
            for companion in companions:
                await companion.start()
            await self._server.serve(sockets=[address.listener])
        finally:
            await end_all(companions)
            await self._host.stop()
            await self._forwarder.close()

    def _find(self) -> dict[str, ServedModel]:
        settings = self._settings
        token = settings.source.hf_token
        hub = Hub(token.get_secret_value() if token else None, settings.source.offline)
        return served_models(settings, find_models(settings.served.models_dir, hub), self._cache_mib)

    async def _reload(self) -> None:
        """Search for models again; after ConfigError, the list is unchanged."""
        async with self._reloading:  # in order, so that the newest list stays
            models = await asyncio.to_thread(self._find)
            self._host.serve(models.values())

    def _names(self) -> str:
        names = list(self._host.models)
        return f"{count(len(names), 'model')}: {', '.join(names)}" if names else "no models yet"


def host_room(n_bytes: int) -> Callable[[int], int]:
    """Return a function that takes the bytes used by running models, and returns the bytes for all models.

    n_bytes: the host memory for all models; 0: the free memory plus the memory used by running models.
    """
    return lambda held: n_bytes or free_memory() + held
