"""Looking for a lead on the local network for as long as it takes (`back --discover`)."""

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

LOOK_AGAIN_SECONDS = 60.0
"""A lead that was found and stays away for so long may have got another address."""
_FIRST_DELAY, _MOST_DELAY = 1.0, 60.0
"""On top of the seconds that each look takes."""


def find(
    settings: BackSettings, rng: random.Random, sleep: Callable[[float], None] = time.sleep
) -> BackSettings:
    """With the lead to dial, which is looked for if the settings say so.

    Blocks until there is one; raises ConfigError if there are several.
    """
    lookout = _Lookout(settings)
    for delay in jittered_delays(_FIRST_DELAY, _MOST_DELAY, rng):
        if found := lookout.look():
            return found
        sleep(delay)
    raise AssertionError("the delays never end")


async def follow(settings: BackSettings, link: Link, listener: LeadListener, rng: random.Random) -> None:
    """Run `link` until cancelled, and look again when its lead is lost; raises ConfigError."""
    while True:
        try:
            await link.run(listener)
        except LostError:
            found = await _find_again(settings, rng)
            link.set_lead(found.websocket_url, found.tls())


async def _find_again(settings: BackSettings, rng: random.Random) -> BackSettings:
    lookout = _Lookout(settings)
    for delay in jittered_delays(_FIRST_DELAY, _MOST_DELAY, rng):
        if found := await asyncio.to_thread(lookout.look):
            return found
        await asyncio.sleep(delay)
    raise AssertionError("the delays never end")


class _Lookout:
    """One search: says once that there is no lead yet."""

    def __init__(self, settings: BackSettings) -> None:
        self._settings = settings
        self._said = False

    def look(self) -> BackSettings | None:
        """The settings with the lead that is there; None if there is none yet. Blocks for some seconds."""
        try:
            return self._settings.discovered()
        except NoLeadError as error:
            level = logging.DEBUG if self._said else logging.INFO
            log.log(level, "%s (looking until there is one)", error)
            self._said = True
            return None
