"""Following several leads at the same time, each over a link of its own."""

import asyncio
import logging
from collections.abc import Sequence

from back.dial import OtherVocabularyError, RefusedError
from back.link import LeadListener, Link

log = logging.getLogger("back")


async def follow_all(links: Sequence[Link], listeners: Sequence[LeadListener]) -> None:
    """Run each link with its listener until cancelled.

    A lead that refuses this back is left out; raises RefusedError when all have. Others may come and go.
    """
    refusals = await asyncio.gather(*map(_follow, links, listeners))
    raise RefusedError(f"no lead is left: {refusals[0]}")


async def _follow(link: Link, listener: LeadListener) -> RefusedError:
    try:
        await link.run(listener)
    except OtherVocabularyError as error:
        log.error("%s; to translate, a back has to have one lead only", error)  # noqa: TRY400 - for users
        return error
    except RefusedError as error:
        log.error("%s", error)  # noqa: TRY400 - for users
        return error
    raise AssertionError("a link runs until it is refused")
