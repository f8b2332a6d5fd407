"""The program of a back: finds its leads, makes a drafter for them, and connects the parts."""

import asyncio
import contextlib
import functools
import logging
import math
import os
import random
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from back import leads
from back.dial import OtherVocabularyError, RefusedError
from back.lead_shares import LeadShares
from back.link import LeadLink
from back.model_fit import fitted, plan_draft
from back.rings import RINGS
from back.settings import BackSettings
from back.worker import DraftWorker
from back.worth import SECONDS, SECONDS_IN_A_FILE, DraftWorth
from shared import cpus
from shared.drafting.drafter import Drafter
from shared.drafting.drafter_maker import drafter_maker, max_ahead
from shared.errors import ConfigError, DuoError
from shared.llama import library
from shared.llama.model import Model
from shared.llama.vocabulary import Vocabulary
from shared.memory.texts_kept import describe_prompt_cache
from shared.model_files.builtin import builtin_draft
from shared.protocol import PROTOCOL_VERSION, Hello, VocabularyId
from shared.rate_limit import Backoff
from shared.sampling.remote_grammar import GrammarServer, TimeBudget
from shared.seams import plugged

log = logging.getLogger("back")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_END_SECONDS = 3.0
"""Time limit for a clean exit: asyncio joins its threads, and one may be waiting for DNS."""
_FIRST_DELAY, _MAX_DELAY = 0.1, 10.0
"""The first and the longest delay, in seconds, between attempts to draft in the lead's vocabulary."""


def run(settings: BackSettings) -> None:
    """Draft until a signal arrives. Raises ConfigError if the settings must be changed."""
    if settings.cpus:
        cpus.pin(cpus.parse_cpus(settings.cpus))
    settings = leads.find(settings, _jitter()).located()
    path = settings.source.model or builtin_draft()
    settings = fitted(settings, path)
    asyncio.run(_run(settings, _load(settings, path)))


@dataclass(frozen=True, slots=True)
class DraftingSetup:
    """The vocabulary for the hello, and the function `make`, which creates a drafter for this vocabulary.

    `make` empties the model's cache. Call `close` when the drafter is no longer used: it ends the process for
    grammars.
    """

    vocabulary: VocabularyId
    make: Callable[[], Drafter]
    close: Callable[[], None]


def setup_for(settings: BackSettings, model: Model, vocabulary: Vocabulary | None = None) -> DraftingSetup:
    """Return the setup for a lead with `vocabulary`; None: the draft model's own vocabulary.

    Takes seconds for another vocabulary. Raises ModelLoadError if it cannot be translated.
    """
    maker = drafter_maker(model, vocabulary or model.vocabulary, RINGS, log)
    budget = TimeBudget()
    grammars = GrammarServer(maker.vocabulary.info.path, budget)

    def make() -> Drafter:
        model.clear()
        return maker.make(
            grammars,
            budget,
            n_slots=settings.n_parallel,
            n_ahead=settings.n_ahead,
            n_branches=settings.n_branches_each,
        )

    return DraftingSetup(maker.vocabulary.identify(), make, grammars.close)


def _load(settings: BackSettings, path: Path) -> Model:
    model = Model(plan_draft(settings, path))
    log.info("%s: %s", model.vocabulary.info.name, model.plan.placement or "devices chosen by llama.cpp")
    log.debug("CPU kernel: %s", library.describe_kernel())
    log.debug("memory: %s", model.plan.size)
    log.debug("prompt cache: %s", describe_prompt_cache(model.prompt_cache))
    if max_ahead(model, settings.n_ahead) < 1:
        raise ConfigError(
            f"{model.vocabulary.info.name} cannot draft because its recurrent states need too much "
            "memory. Lower --parallel or --n-branches"
        )
    return model


async def _run(settings: BackSettings, model: Model) -> None:
    loop = asyncio.get_running_loop()
    if settings.has_default_lead:
        log.info("looking for a lead on this machine. To join a lead on another machine, use --join CODE")
    links = [_link(settings.with_lead(url), model) for url in settings.lead]
    failed: asyncio.Future[None] = loop.create_future()

    def on_failure(error: Exception) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may be closed before the thread ends
            loop.call_soon_threadsafe(failed.set_exception, error)

    setup = setup_for(settings, model)
    posts = [link.outbox.post for link in links]
    shares = LeadShares(len(links)) if len(links) > 1 else None
    worker = DraftWorker(
        setup.make(),
        posts,
        on_failure,
        n_sequences=settings.compute.parallel,
        shares=shares,
        worth=_worth(settings),
    )
    worker.start()
    following = asyncio.ensure_future(
        _follow(settings, model, setup, links[0], worker)
        if len(links) == 1
        else leads.follow_all(links, worker)
    )
    for number in _SIGNALS:
        _on_signal(loop, number, functools.partial(_end, loop, following))
    await asyncio.wait({following, failed}, return_when=asyncio.FIRST_COMPLETED)
    if failed.done():
        following.cancel()
        failed.result()
    with contextlib.suppress(asyncio.CancelledError):
        await following


async def _follow(
    settings: BackSettings, model: Model, setup: DraftingSetup, link: LeadLink, worker: DraftWorker
) -> None:
    """Draft until cancelled, in the vocabulary of the present lead; raises RefusedError."""
    delays = Backoff(_FIRST_DELAY, _MAX_DELAY, _jitter())
    while True:
        try:
            await leads.follow(settings, link, worker)
        except OtherVocabularyError as refusal:
            try:
                new = await asyncio.to_thread(_setup_for_lead, settings, model, link)
            except OSError as error:
                log.info("%s: trying again", error)
            except DuoError as error:
                raise RefusedError(f"{refusal}. The back cannot translate: {error}") from error
            else:
                link.set_vocabulary(new.vocabulary)
                worker.change_drafter(functools.partial(_replace, setup, new))
                setup = new
            await asyncio.sleep(next(delays))


def _worth(settings: BackSettings) -> list[DraftWorth]:
    seconds = SECONDS if sys.stderr.isatty() else SECONDS_IN_A_FILE
    names = settings.lead if len(settings.lead) > 1 else ("",)
    return [DraftWorth(seconds, name) for name in names]


def _link(settings: BackSettings, model: Model) -> LeadLink:
    return LeadLink(
        settings.websocket_url,
        _hello(settings, model),
        _jitter(),
        key=settings.read_key(),
        tls=settings.tls(),
        ping_seconds=settings.ping_seconds,
        max_absence_seconds=leads.REDISCOVER_SECONDS if settings.discover or settings.is_joined else math.inf,
        survives_distrust=settings.is_joined,
    )


def _setup_for_lead(settings: BackSettings, model: Model, link: LeadLink) -> DraftingSetup:
    """Return the setup for the lead's vocabulary. Raises OSError if a retry may succeed, else ConfigError."""
    for ring in plugged(RINGS, "vocabulary_download"):
        return setup_for(settings, model, ring.lead_vocabulary(link.lead, settings.read_key(), link.tls))
    raise ConfigError(
        "the lead has another tokenizer, and this back was installed without the part that translates "
        "drafts. Use a draft model with the lead's tokenizer"
    )


def _replace(old: DraftingSetup, new: DraftingSetup) -> Drafter:
    old.close()
    return new.make()


def _jitter() -> random.Random:
    return random.Random()  # noqa: S311 - jitter is not a secret


def _on_signal(loop: asyncio.AbstractEventLoop, number: int, call: Callable[[], None]) -> None:
    try:
        loop.add_signal_handler(number, call)
    except NotImplementedError:  # Windows
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(call))


def _end(loop: asyncio.AbstractEventLoop, following: asyncio.Future[None]) -> None:
    """Begin a clean exit with a time limit. The next signal ends the process at once."""
    following.cancel()
    for number in _SIGNALS:
        with contextlib.suppress(NotImplementedError):  # as above
            loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)
    loop.call_later(_END_SECONDS, os._exit, 0)


def _hello(settings: BackSettings, model: Model) -> Hello:
    return Hello(
        protocol=PROTOCOL_VERSION,
        name=settings.own_name,
        vocabulary=model.vocabulary.identify(),
        n_ctx=model.n_ctx,
        n_sequences=settings.compute.parallel,
    )
