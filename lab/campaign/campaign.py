"""Runs concurrent clients against a site while faults happen."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from itertools import takewhile

import httpx

from lab.campaign.asking import Asker, Outcome, Tally, unpooled
from lab.campaign.injector import Fault, Happened, Injector
from lab.campaign.requests import MixedRequest
from lab.campaign.site import Site
from lab.measuring.answer import ReceivedAnswer
from shared.errors import ConfigError

_SETTLING_SECONDS = 60.0
_TELL_SECONDS = 20.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident MB by process: after the first tenth of the requests, and at the end."""

    start: dict[str, float]
    end: dict[str, float]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a campaign. `n_left_running`: slots still busy after all clients are done.

    `n_hostile`, `failures`: see `Site`.
    """

    tally: Tally
    happened: Sequence[Happened]
    memory: Memory
    n_hostile: Mapping[str, int]
    failures: Sequence[str]
    seconds: float
    n_left_running: int
    lead_log: str


async def answers(site: Site, requests: Iterable[MixedRequest]) -> dict[int, ReceivedAnswer]:
    """Return the whole answer to each request, sent one at a time without prompt cache.

    Raises ConfigError if a request gets no answer.
    """
    expected: dict[int, ReceivedAnswer] = {}
    async with asking(site, time.monotonic) as asker:
        for request in requests:
            alone = replace(request, leaves_after=None, body={**request.body, "cache_prompt": False})
            outcome = await asker.ask(alone)
            if not outcome.answer.done:
                raise ConfigError(f"request {request.index} has no answer without faults: {outcome.errors}")
            expected[request.index] = outcome.answer
    return expected


async def run(
    site: Site,
    requests: Sequence[MixedRequest],
    tally: Tally,
    *,
    n_clients: int,
    schedule: Iterable[Fault],
    seconds: float,
) -> Result:
    """Send all requests with `n_clients` at a time while the faults of `schedule` happen.

    No request starts after `seconds`. Raises ConfigError if the lead itself ends, or does not serve again
    afterwards.
    """
    begun, start = time.monotonic(), dict[str, float]()
    injector = Injector(site, lambda: time.monotonic() - begun)

    def take(outcome: Outcome) -> None:  # memory is compared with that after the first tenth
        tally.add(outcome)
        if tally.n_requests == max(1, len(requests) // 10):
            start.update(site.memory())

    try:
        async with asking(site, injector.clock) as asker, asyncio.TaskGroup() as group:
            following = group.create_task(injector.follow(schedule))
            watching = group.create_task(_watch(site, tally, len(requests)))
            in_time = takewhile(lambda _: injector.clock() < seconds, requests)
            await _ask_all(asker, in_time, n_clients, take)
            # All requests have ended; without further faults, the state found below is final.
            following.cancel()
            watching.cancel()
    except* ConfigError as errors:
        raise first_error(errors) from None
    n_seconds, n_busy = injector.clock(), await _settle(site)
    memory, hostility = Memory(start, site.memory()), (site.n_hostile, site.failures)
    return Result(tally, injector.happened, memory, *hostility, n_seconds, n_busy, site.lead.log)


def tell(line: str) -> None:
    print(line, flush=True)


def first_error(errors: BaseExceptionGroup[ConfigError]) -> ConfigError:
    error = errors.exceptions[0]
    return first_error(error) if isinstance(error, BaseExceptionGroup) else error


@asynccontextmanager
async def asking(site: Site, clock: Callable[[], float]) -> AsyncIterator[Asker]:
    """Yield an `Asker` for the site's lead."""
    async with unpooled(site.url) as http:
        yield Asker(http, clock, asyncio.sleep)


async def _ask_all(
    asker: Asker, requests: Iterable[MixedRequest], n_clients: int, take: Callable[[Outcome], None]
) -> None:
    waiting = iter(requests)

    async def client() -> None:
        for request in waiting:
            take(await asker.ask(request))

    async with asyncio.TaskGroup() as group:
        for _ in range(n_clients):
            group.create_task(client())


async def _watch(site: Site, tally: Tally, n_requests: int) -> None:
    """Report progress; raises ConfigError when the lead itself has ended."""
    told = time.monotonic()
    while True:
        site.require_lead()
        await asyncio.sleep(_POLL_SECONDS)
        if time.monotonic() - told > _TELL_SECONDS:
            told = time.monotonic()
            wrong = f"{tally.n_changed} changed, {tally.n_lost} lost, {tally.n_unterminated} unterminated"
            tell(f"{tally.n_requests} of {n_requests} requests: {wrong}")


async def _settle(site: Site) -> int:
    """Wait until the lead is idle again; returns the number of slots that stay busy."""
    deadline = time.monotonic() + _SETTLING_SECONDS
    n_busy: int | None = None
    async with httpx.AsyncClient(base_url=site.url, trust_env=False) as http:
        while n_busy != 0 and time.monotonic() < deadline:
            site.require_lead()
            with suppress(httpx.TransportError):
                slots = await http.get("/slots")
                n_busy = sum(slot["is_processing"] for slot in slots.json()) if slots.is_success else None
            await asyncio.sleep(_POLL_SECONDS)
    if n_busy is None:
        raise ConfigError(f"the lead no longer serves:\n{site.lead.log[-3000:]}")
    return n_busy
