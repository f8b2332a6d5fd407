"""A lead for this process alone: engine, front and local back, without clients."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from lead.generate.generate_settings import GenerateSettings
from lead.server.server import Lead
from lead.server.services import Services
from shared.errors import ConfigError, TranslationError, UnavailableError
from shared.llama.vocabulary import Vocabulary
from shared.translation.stored_pair import stored_pair

_Result = TypeVar("_Result")
_LOOK_SECONDS = 0.02


class StoppedError(Exception):
    """A signal ended the lead before the work was done."""


async def with_lead(settings: GenerateSettings, work: Callable[[Services], Awaitable[_Result]]) -> _Result:
    """Start a lead, wait for its back, do the work and end the lead.

    `settings` have models that are there. Raises ConfigError if it cannot start, StoppedError after a signal,
    and what `work` raises.
    """
    lead = Lead(settings.alone())
    serving = asyncio.ensure_future(lead.serve())
    working = asyncio.ensure_future(_work(lead, settings, work))
    try:
        await asyncio.wait({serving, working}, return_when=asyncio.FIRST_COMPLETED)
        was_stopped = lead.is_stopping
    finally:
        lead.stop()
        working.cancel()
        # its end tells why there is no result: the model cannot be loaded, say
        await serving
    try:
        return await working
    except (asyncio.CancelledError, UnavailableError) as error:
        if was_stopped:
            raise StoppedError from error
        raise


async def _work(
    lead: Lead, settings: GenerateSettings, work: Callable[[Services], Awaitable[_Result]]
) -> _Result:
    services = await lead.ready()
    draft_model = settings.own_back.source(settings.source).model
    if draft_model is not None:
        draft = await asyncio.to_thread(Vocabulary.load, draft_model)
        if draft.identify().fingerprint != services.backs.vocabulary.fingerprint:
            await asyncio.to_thread(_check_pair, draft, services.vocabulary)
        while not any(services.backs) and not lead.has_given_up_back:  # noqa: ASYNC110 - nobody else waits
            await asyncio.sleep(_LOOK_SECONDS)
    return await work(services)


def _check_pair(draft: Vocabulary, target: Vocabulary) -> None:
    """Raises ConfigError if the back cannot translate."""
    try:
        stored_pair(draft, target)
    except TranslationError as error:
        raise ConfigError(
            f"{draft.info.name} cannot draft for {target.info.name}: it has another vocabulary, and {error}; "
            "use a smaller model of the same family"
        ) from error
