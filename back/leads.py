"""The leads that a back drafts for: one, given by address or found on the local network, or several
at once.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence

from back.dial import OtherVocabularyError, RefusedError
from back.link import LeadLink, LostError
from back.settings import BackSettings
from back.worker import DraftWorker
from shared.errors import ConfigError, NoLeadError, SeveralLeadsError
from shared.rate_limit import Backoff

log = logging.getLogger("back")

REDISCOVER_SECONDS = 60.0
"""After this time without its lead a back searches again: the lead may have another address now."""
_FIRST_DELAY, _MAX_DELAY = 1.0, 60.0
"""Seconds between two searches, each of which takes some seconds itself."""


def find(
    settings: BackSettings, rng: random.Random, sleep: Callable[[float], None] = time.sleep
) -> BackSettings:
    """The settings with the lead's address, after a search of the local network if the settings ask for one.

    Blocks until a lead is found; raises SeveralLeadsError if there are several.
    """
    discovery = _LeadDiscovery(settings)
    delays = Backoff(_FIRST_DELAY, _MAX_DELAY, rng)
    while not (found := discovery.search()):
        sleep(next(delays))
    return found


async def follow(settings: BackSettings, link: LeadLink, worker: DraftWorker) -> None:
    """Run `link` until cancelled, and search for its lead again when it is lost.

    Between two searches the old address is tried for a while. A lead that is found by a later search cannot
    end a running back: only the lead that it began with may refuse it for good (RefusedError). Raises
    OtherVocabularyError if any lead has another vocabulary: run the back again with that one.
    """
    discovery = _LeadDiscovery(settings, again=True)
    is_first = True
    while True:
        try:
            await link.run(worker)
        except LostError:
            if found := await asyncio.to_thread(discovery.search):
                link.set_lead(found.websocket_url, found.tls())
                is_first = found.url == settings.url
        except RefusedError as error:
            if is_first or isinstance(error, OtherVocabularyError):
                raise
            log.warning("%s: going back to %s", error, settings.url)
            link.set_lead(settings.websocket_url, settings.tls())
            is_first = True


class _LeadDiscovery:
    """Searches for a lead; logs only the first failure of several in a row."""

    def __init__(self, settings: BackSettings, *, again: bool = False) -> None:
        """`again`: a lead has been found before; of several leads, it is looked for."""
        self._settings = settings
        self._again = again
        self._reported = False

    def search(self) -> BackSettings | None:
        """The settings with the address of the lead; None if there is no lead. Blocks for some seconds.

        Raises SeveralLeadsError, unless one has been found before.
        """
        try:
            self._settings = self._settings.discovered(again=self._again)
        except NoLeadError as error:
            self._report(error)
            return None
        except SeveralLeadsError as error:
            if not self._again:
                raise
            self._report(error)
            return None
        self._reported = False
        return self._settings

    def _report(self, error: ConfigError) -> None:
        level = logging.DEBUG if self._reported else logging.INFO
        log.log(level, "%s (searching until there is one)", error)
        self._reported = True


async def follow_all(links: Sequence[LeadLink], worker: DraftWorker) -> None:
    """Run all links until cancelled; a link's index is the number of its lead for `worker`.

    A lead that refuses this back is dropped; raises RefusedError when all have refused. Leads that are
    unreachable are tried again.
    """
    refusals = await asyncio.gather(*(_follow(link, worker, lead) for lead, link in enumerate(links)))
    raise RefusedError(f"no lead is left: {refusals[0]}")


async def _follow(link: LeadLink, worker: DraftWorker, lead: int) -> RefusedError:
    try:
        await link.run(worker, lead)
    except OtherVocabularyError as error:
        log.error("%s; to translate, a back has to have one lead only", error)  # noqa: TRY400 - for users
        return error
    except RefusedError as error:
        log.error("%s", error)  # noqa: TRY400 - for users
        return error
    raise AssertionError("a link runs until it is refused")
