"""The leads that a back drafts for: one, given by address or found on the local network, or several."""

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
"""After this time without its lead, a back searches again, as the lead's address may have changed."""
_FIRST_DELAY, _MAX_DELAY = 1.0, 60.0
"""Seconds between two searches, each of which takes a few seconds itself."""


def find(
    settings: BackSettings, rng: random.Random, sleep: Callable[[float], None] = time.sleep
) -> BackSettings:
    """Return the settings with the lead's address, searching the local network if the settings say so.

    Blocks until a lead is found. Raises SeveralLeadsError if several are found.
    """
    discovery = _LeadDiscovery(settings)
    delays = Backoff(_FIRST_DELAY, _MAX_DELAY, rng)
    while not (found := discovery.search()):
        sleep(next(delays))
    return found


async def follow(settings: BackSettings, link: LeadLink, worker: DraftWorker) -> None:
    """Run `link` until cancelled, and search for its lead again when the lead is lost.

    Between two searches, the old address is tried for a while. Only the first lead may end the back by
    refusing it (RefusedError), not a lead found by a later search. Raises OtherVocabularyError if any lead
    has another vocabulary: run again with that vocabulary.
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
            log.warning("%s; returning to the lead at %s", error, settings.url)
            link.set_lead(settings.websocket_url, settings.tls())
            is_first = True


class _LeadDiscovery:
    """Searches for a lead; logs only the first of several failures in a row."""

    def __init__(self, settings: BackSettings, *, again: bool = False) -> None:
        """again: a lead was found before. If several leads are found, this lead is chosen."""
        self._settings = settings
        self._again = again
        self._reported = False

    def search(self) -> BackSettings | None:
        """Return the settings with the address of the lead; None if no lead is found.

        Blocks for a few seconds. Raises SeveralLeadsError if several are found and none was found before.
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
        log.log(level, "%s. Searching until a lead is found", error)
        self._reported = True


async def follow_all(links: Sequence[LeadLink], worker: DraftWorker) -> None:
    """Run all links until cancelled; a link's index is the number of its lead for `worker`.

    A lead that refuses this back is dropped. Raises RefusedError when all have refused. Unreachable leads are
    tried again.
    """
    refusals = await asyncio.gather(*(_follow(link, worker, lead) for lead, link in enumerate(links)))
    raise RefusedError(f"every lead has refused this back: {refusals[0]}")


async def _follow(link: LeadLink, worker: DraftWorker, lead: int) -> RefusedError:
    try:
        await link.run(worker, lead)
    except OtherVocabularyError as error:
        log.error("%s. A back can translate for one lead only", error)  # noqa: TRY400 - for users
        return error
    except RefusedError as error:
        log.error("%s", error)  # noqa: TRY400 - for users
        return error
    raise AssertionError("a link runs until it is refused")
