"""The backs of a fleet: started as actors, and moved to the leads that gain most from them."""

import asyncio
import logging
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import httpx
import ray

from fleet.moves import LeadNeed, Move, gain_of, plan_moves
from fleet.settings import FleetSettings
from shared.python_child import ChildProcess, child_command

log = logging.getLogger("ray.serve")

_STOP_SECONDS = 5.0


_SILENT_SECONDS = 15.0
"""A lead that has not registered for this long is gone; replicas register at each health check."""
_ASK_SECONDS = 5.0
_ACTOR_SECONDS = 15.0
"""Longer than a back takes to end."""
_RECENT = 0.5
"""Weight of the last look at a lead's running sequences."""


class BackActor:
    """An actor that owns a `back` process on any node with room; the back drafts for one lead at a time."""

    def __init__(self, settings: FleetSettings, name: str) -> None:
        self._arguments = [*settings.arguments("back"), "--name", name]
        self._name = name
        self._back: ChildProcess | None = None

    def follow(self, lead: str) -> None:
        if self._back:
            self._back.stop(_STOP_SECONDS)
        self._back = ChildProcess(child_command("back", "--lead", lead, *self._arguments))
        log.info("%s drafts for %s", self._name, lead)

    def is_drafting(self) -> bool:
        return self._back is not None and self._back.is_running


@dataclass(slots=True)
class _KnownLead:
    """`n_running`: of late. `gain`: of a draft token of its backs, in tokens of the text, as it has seen."""

    seen_at: float
    n_running: float = 0.0
    gain: float = 1.0


class BackPool:
    """Starts the backs and assigns them to leads. A deployment with one replica; the backs end with it."""

    def __init__(self, settings: FleetSettings) -> None:
        self._settings = settings
        actor = ray.remote(BackActor).options(
            num_cpus=settings.back_cpus,
            num_gpus=settings.back_gpus,
            scheduling_strategy="SPREAD",
            max_restarts=-1,
        )
        names = [f"back-{number}" for number in range(settings.backs)]
        self._actors = {name: actor.remote(settings, name) for name in names}
        self._placed: dict[str, str | None] = dict.fromkeys(names)
        self._leads: dict[str, _KnownLead] = {}
        self._working: asyncio.Task[None] | None = None

    async def register(self, lead: str) -> None:
        self._leads.setdefault(lead, _KnownLead(0.0)).seen_at = time.monotonic()
        if self._working is None or self._working.done():
            self._working = asyncio.get_running_loop().create_task(self._work())

    async def placed(self) -> dict[str, str | None]:
        return dict(self._placed)

    async def _work(self) -> None:
        key = self._settings.key()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with httpx.AsyncClient(headers=headers, timeout=_ASK_SECONDS, trust_env=False) as http:
            while True:
                await self._look(http)
                needs = [LeadNeed(url, lead.n_running, lead.gain) for url, lead in self._leads.items()]
                moves = plan_moves(needs, await self._reached(), self._settings.sequences_per_back)
                await asyncio.gather(*map(self._move, moves))
                await asyncio.sleep(self._settings.move_seconds if all(self._placed.values()) else 1.0)

    async def _look(self, http: httpx.AsyncClient) -> None:
        now = time.monotonic()
        self._leads = {url: lead for url, lead in self._leads.items() if lead.seen_at > now - _SILENT_SECONDS}
        await asyncio.gather(*(self._ask(http, url, lead) for url, lead in self._leads.items()))

    async def _ask(self, http: httpx.AsyncClient, url: str, lead: _KnownLead) -> None:
        """Update `lead` with its load and the gain of its backs; without a reply they stay unchanged."""
        try:
            loads = (await http.get(f"{url}/loads")).raise_for_status().json()["loads"][0]
            backs = (await http.get(f"{url}/v1/speculation")).raise_for_status().json()["backs"]
        except (httpx.HTTPError, ValueError, LookupError) as error:
            log.warning("%s does not say how busy it is: %r", url, error)
            return
        lead.n_running += _RECENT * (loads["num_running_reqs"] - lead.n_running)
        lead.gain = gain_of(backs, lead.gain)

    async def _reached(self) -> dict[str, str | None]:
        """Return the backs whose actors answer, with their leads: those for which Ray has room."""
        answers = await asyncio.gather(
            *(_within(actor.is_drafting.remote()) for actor in self._actors.values()), return_exceptions=True
        )
        for name, is_drafting in zip(self._actors, answers, strict=True):
            if is_drafting is not True:
                self._placed[name] = None
        answered = (name for name, each in zip(self._actors, answers, strict=True) if isinstance(each, bool))
        return {name: self._placed[name] for name in answered}

    async def _move(self, move: Move) -> None:
        try:
            await _within(self._actors[move.back].follow.remote(move.lead))
        except (ray.exceptions.RayError, TimeoutError) as error:
            log.warning("%s is away: %r", move.back, error)
            self._placed[move.back] = None
        else:
            log.info("%s: %s → %s", move.back, self._placed[move.back], move.lead)
            self._placed[move.back] = move.lead


async def _within(answer: Awaitable[Any]) -> Any:
    """Return an actor's answer; raises TimeoutError, as for one that waits for a place."""
    return await asyncio.wait_for(answer, _ACTOR_SECONDS)
