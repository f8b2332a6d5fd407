"""Finding a lead on the local network, however long that takes (`back --discover`)."""

import asyncio
import logging
import random
import time
from collections.abc import Callable

from back.link import LeadListener, Link, LostError
from back.settings import BackSettings
from shared.backoff import jittered_delays
from shared.discovery import NoLeadError

log = logging.getLogger("back")

REDISCOVER_SECONDS = 60.0
"""After this time without its lead a back searches again: the lead may have another address now."""
_FIRST_DELAY, _MAX_DELAY = 1.0, 60.0
"""Seconds between two searches, each of which takes some seconds itself."""


def find(
    settings: BackSettings, rng: random.Random, sleep: Callable[[float], None] = time.sleep
) -> BackSettings:
    """The settings with the address of the lead, which is searched for if they say so.

    Blocks until a lead is found; raises ConfigError if there are several.
    """
    discovery = _LeadDiscovery(settings)
    for delay in jittered_delays(_FIRST_DELAY, _MAX_DELAY, rng):
        if found := discovery.search():
            return found
        sleep(delay)
    raise AssertionError("the delays never end")


async def follow(settings: BackSettings, link: Link, listener: LeadListener, rng: random.Random) -> None:
    """Run `link` until cancelled, and search again when its lead is lost; raises ConfigError."""
    while True:
        try:
            await link.run(listener)
        except LostError:
            found = await _find_again(settings, rng)
            link.set_lead(found.websocket_url, found.tls())


async def _find_again(settings: BackSettings, rng: random.Random) -> BackSettings:
    discovery = _LeadDiscovery(settings)
    for delay in jittered_delays(_FIRST_DELAY, _MAX_DELAY, rng):
        if found := await asyncio.to_thread(discovery.search):
            return found
        await asyncio.sleep(delay)
    raise AssertionError("the delays never end")


class _LeadDiscovery:
    """Searches for a lead; logs only the first failure."""

    def __init__(self, settings: BackSettings) -> None:
        self._settings = settings
        self._reported = False

    def search(self) -> BackSettings | None:
        """The settings with the address of the lead; None if there is no lead. Blocks for some seconds."""
        try:
            return self._settings.discovered()
        except NoLeadError as error:
            level = logging.DEBUG if self._reported else logging.INFO
            log.log(level, "%s (searching until there is one)", error)
            self._reported = True
            return None
