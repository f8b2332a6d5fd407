"""The schedule of faults, and how each fault is applied to real programs and undone.

The schedule is drawn from a seed and endless. Faults come in tracks, one for each part of the system. Faults
of different tracks overlap; faults of the same track do not.
"""

import asyncio
import heapq
import random
import resource
import signal
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass

import httpx
import psutil

from lab.campaign.asking import unpooled
from lab.campaign.hostile_back import n_frames_sent
from lab.campaign.hostile_lead import HostileLead
from lab.campaign.hostile_requests import Operation, attack, hostile_request, operations
from lab.campaign.site import Site
from lab.parts.link import Link
from lab.parts.processes import Program
from shared.errors import ConfigError

_N_FLAPS, _FLAP_SECONDS = 2, 0.7
_DELAY_SECONDS = 0.15
"""The delay in each direction."""
_THROTTLED = 2000.0
"""The bytes per second of a slow link."""
_MAX_PIECE_BYTES, _MAX_PIECE_DELAY_SECONDS = 23, 0.02
_DEADLY = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT)
"""The signals with which the kernel, or native code itself, ends processes."""
_N_HOSTILE_CLIENTS, _HOSTILE_PAUSE_SECONDS = 4, 0.02
_FREE_DESCRIPTORS = 3
_FREE_BYTES = {"engine": 0, "front": 8 << 20}
"""The bytes that a process may still allocate. The engine soon fails; the front must get by with them."""

_PAUSES = {
    "engine": (5.0, 15.0),
    "tokenizer": (5.0, 15.0),
    "back": (3.0, 10.0),
    "hostile": (5.0, 15.0),
    "client": (5.0, 15.0),
    "other lead": (10.0, 30.0),
    "link": (1.0, 4.0),
    "lead": (5.0, 15.0),
}
"""Seconds from the end of one fault of a track to the beginning of the next, by track."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A scheduled fault. `begins`: seconds since the start of the campaign.

    `choice`, between 0 and 1, chooses the back or link.
    """

    begins: float
    track: str
    number: int
    kind: str
    seconds: float
    choice: float


Action = Callable[[Site, Fault], AbstractAsyncContextManager[None]]


class NothingThereError(Exception):
    """There is nothing to apply the fault to, as the process is being restarted."""


@dataclass(frozen=True, slots=True)
class Happened:
    """A fault that was applied, with its times in seconds of the campaign's clock."""

    fault: Fault
    began: float
    ended: float


class Injector:
    """Applies faults to a site. happened: the applied faults, in the order in which they ended."""

    def __init__(self, site: Site, clock: Callable[[], float]) -> None:
        self._site = site
        self.clock = clock
        self.happened: list[Happened] = []

    async def follow(self, schedule: Iterable[Fault]) -> None:
        """Apply each fault at its time, until cancelled; faults still active then are undone."""
        async with asyncio.TaskGroup() as group:
            for fault in schedule:
                await asyncio.sleep(max(0.0, fault.begins - self.clock()))
                group.create_task(self.inject(fault))

    async def inject(self, fault: Fault) -> None:
        """Apply a fault, and undo it at its end."""
        began = self.clock()
        with suppress(NothingThereError):
            async with KINDS[fault.kind].action(self._site, fault):
                try:
                    await asyncio.sleep(fault.seconds)
                finally:
                    self.happened.append(Happened(fault, began, self.clock()))


def _engine(site: Site, fault: Fault) -> psutil.Process:
    del fault
    if engine := site.take_ready_engine():
        return engine
    raise NothingThereError


def _tokenizer(site: Site, fault: Fault) -> psutil.Process:
    """Return the process that forks tokenizers, or one of its forks."""
    if forking := site.lead_processes().get("tokenizer"):
        processes = [forking, *forking.children()]
        return processes[int(fault.choice * len(processes))]
    raise NothingThereError


def _back(site: Site, fault: Fault) -> int:
    return int(fault.choice * len(site.backs))


def _killed(find: Callable[[Site, Fault], psutil.Process], *signals: signal.Signals) -> Action:
    """Return an action that sends one of these signals to a process."""

    @asynccontextmanager
    async def action(site: Site, fault: Fault) -> AsyncIterator[None]:
        with suppress(psutil.NoSuchProcess):
            find(site, fault).send_signal(signals[fault.number % len(signals)])
        yield

    return action


@asynccontextmanager
async def _engine_killed_twice(site: Site, fault: Fault) -> AsyncIterator[None]:
    """Kill the engine, and then the next engine, most likely while the next engine loads the model."""
    async with _killed(_engine, *_DEADLY)(site, fault):
        yield
    with suppress(psutil.NoSuchProcess):
        if engine := site.engine:
            engine.kill()


def _stopped(find: Callable[[Site, Fault], psutil.Process]) -> Action:
    """Return an action that suspends a process (SIGSTOP), and resumes it in the end if it still runs."""

    @asynccontextmanager
    async def action(site: Site, fault: Fault) -> AsyncIterator[None]:
        process = find(site, fault)
        with suppress(psutil.NoSuchProcess):
            process.suspend()
        try:
            yield
        finally:
            with suppress(psutil.NoSuchProcess):
                process.resume()

    return action


@asynccontextmanager
async def _limited(process: psutil.Process, kind: int, maximum: int) -> AsyncIterator[None]:
    """Limit a resource of the process within this context (`prlimit`)."""
    try:
        before, hard = process.rlimit(kind)
        process.rlimit(kind, (maximum, hard))
    except psutil.NoSuchProcess as error:
        raise NothingThereError from error
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):
            process.rlimit(kind, (before, hard))


def _engine_out_of_memory(site: Site, fault: Fault) -> AbstractAsyncContextManager[None]:
    engine = _engine(site, fault)
    return _limited(engine, resource.RLIMIT_AS, engine.memory_info().vms + _FREE_BYTES["engine"])


def _front_limited(kind: int, maximum: Callable[[psutil.Process], int]) -> Action:
    @asynccontextmanager
    async def action(site: Site, fault: Fault) -> AsyncIterator[None]:
        del fault
        if site.replacing:  # which takes longer than its fault on a busy machine
            raise NothingThereError
        async with _limited(site.front, kind, maximum(site.front)):
            site.is_starved = True
            try:
                yield
            finally:
                site.is_starved = False

    return action


@asynccontextmanager
async def _back_killed(site: Site, fault: Fault) -> AsyncIterator[None]:
    index = _back(site, fault)
    async with site.restarting[index]:
        await asyncio.to_thread(site.kill_back, index)
        try:
            yield
        finally:
            site.start_back(index)


@asynccontextmanager
async def _back_flapping(site: Site, fault: Fault) -> AsyncIterator[None]:
    index = _back(site, fault)
    async with site.restarting[index]:
        for _ in range(_N_FLAPS):
            await asyncio.to_thread(site.kill_back, index)
            site.start_back(index)
            await asyncio.sleep(_FLAP_SECONDS)
        yield


@asynccontextmanager
async def _lead_replaced(site: Site, fault: Fault) -> AsyncIterator[None]:
    """Replace the lead by another one; the old lead finishes its answers."""
    del fault
    if site.replacing or site.is_starved:
        raise NothingThereError
    replacing = asyncio.ensure_future(asyncio.to_thread(site.replace_lead))
    try:
        await asyncio.shield(replacing)
        yield
    finally:
        await replacing  # even if the campaign ends meanwhile: there are two leads until it is done


@asynccontextmanager
async def _back_hostile(site: Site, fault: Fault) -> AsyncIterator[None]:
    with Program("lab.campaign.hostile_back", "--lead", site.url, "--seed", str(fault.number)) as program:
        try:
            yield
        finally:
            program.process.kill()
            site.n_hostile.update(n_frames_sent(program.log))


@asynccontextmanager
async def _client_hostile(site: Site, fault: Fault) -> AsyncIterator[None]:
    async with unpooled(site.url) as http:
        try:
            described = operations((await http.get("/openapi.json")).raise_for_status().json())
        except httpx.HTTPError as error:
            raise NothingThereError from error
        async with asyncio.TaskGroup() as group:
            clients = [
                group.create_task(_attack(site, http, described, f"{fault.number} {number}"))
                for number in range(_N_HOSTILE_CLIENTS)
            ]
            yield
            for client in clients:
                client.cancel()


async def _attack(site: Site, http: httpx.AsyncClient, described: Sequence[Operation], seed: str) -> None:
    """Send hostile requests of one client without end."""
    rng = random.Random(seed)  # noqa: S311 - a seeded choice is wanted
    while True:
        (operation,) = rng.choices(described, [5 if each.places else 1 for each in described])
        request = hostile_request(operation, rng)
        failure = await attack(http, request)
        if failure and not site.is_starved:  # without descriptors the lead may report errors
            site.failures.append(failure)
        site.n_hostile[f"{request.method} {request.path}"] += 1
        await asyncio.sleep(_HOSTILE_PAUSE_SECONDS)
        while site.is_starved:  # noqa: ASYNC110 - few descriptors are left, for those whose answers are judged
            await asyncio.sleep(_HOSTILE_PAUSE_SECONDS)


@asynccontextmanager
async def _lead_hostile(site: Site, fault: Fault) -> AsyncIterator[None]:
    """Start another back against a hostile lead; the back must outlive it."""
    lead = HostileLead(random.Random(fault.number))  # noqa: S311 - as above
    async with lead.serving() as url:
        back = Program("back", "--lead", url, "--threads", "1", "--name", "victim")
        try:
            yield
            status = back.process.poll()
        finally:
            await asyncio.to_thread(back.stop)
    site.n_hostile["connections of a back to a hostile lead"] += lead.n_connections
    site.failures += lead.wrong
    if status is not None or "Traceback" in back.log:
        site.failures.append(
            f"a back with a hostile lead ({fault.number}) ended with status {status}:\n{back.log[-2000:]}"
        )


def _link_worse(change: Callable[[Link, Fault], None]) -> Action:
    """Return the action that makes one link worse by `change`, and perfect again in the end."""

    @asynccontextmanager
    async def action(site: Site, fault: Fault) -> AsyncIterator[None]:
        link = site.links[int(fault.choice * len(site.links))]
        change(link, fault)
        try:
            yield
        finally:
            link.restore()

    return action


def _in_pieces(link: Link, fault: Fault) -> None:
    """Deliver each message in many parts, at uneven times."""
    rng = random.Random(fault.number)  # noqa: S311 - a seeded choice is wanted
    link.worsen(lambda: rng.uniform(0.0, _MAX_PIECE_DELAY_SECONDS), max_bytes=_MAX_PIECE_BYTES)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault. `action`: entering its context applies the fault, leaving it undoes it.

    Its duration in seconds is drawn between two bounds.
    """

    track: str
    action: Action
    shortest: float = 0.0
    longest: float = 0.0


KINDS: Mapping[str, Kind] = {
    "engine-killed": Kind("engine", _killed(_engine, *_DEADLY)),
    "engine-killed-twice": Kind("engine", _engine_killed_twice, 0.3, 2.0),
    "engine-stopped": Kind("engine", _stopped(_engine), 0.3, 6.0),
    "engine-out-of-memory": Kind("engine", _engine_out_of_memory, 1.0, 3.0),
    "tokenizer-killed": Kind("tokenizer", _killed(_tokenizer, signal.SIGKILL)),
    "tokenizer-stopped": Kind("tokenizer", _stopped(_tokenizer), 0.3, 6.0),
    "back-killed": Kind("back", _back_killed, 0.0, 3.0),
    "back-stopped": Kind(
        "back",
        _stopped(lambda site, fault: psutil.Process(site.backs[_back(site, fault)].process.pid)),
        0.5,
        6.0,
    ),
    "back-flapping": Kind("back", _back_flapping),
    "back-hostile": Kind("hostile", _back_hostile, 2.0, 6.0),
    "client-hostile": Kind("client", _client_hostile, 2.0, 6.0),
    "lead-hostile": Kind("other lead", _lead_hostile, 4.0, 8.0),
    "link-cut": Kind("link", _link_worse(lambda link, _: link.cut())),
    "link-black-hole": Kind("link", _link_worse(lambda link, _: link.stop_flow()), 0.5, 8.0),
    "link-300-ms": Kind("link", _link_worse(lambda link, _: link.worsen(lambda: _DELAY_SECONDS)), 2.0, 6.0),
    "link-throttled": Kind(
        "link", _link_worse(lambda link, _: link.worsen(bytes_per_second=_THROTTLED)), 2.0, 6.0
    ),
    "link-pieces": Kind("link", _link_worse(_in_pieces), 2.0, 6.0),
    "lead-few-descriptors": Kind(
        "lead",
        _front_limited(resource.RLIMIT_NOFILE, lambda front: front.num_fds() + _FREE_DESCRIPTORS),
        0.5,
        3.0,
    ),
    "lead-little-memory": Kind(
        "lead",
        _front_limited(resource.RLIMIT_AS, lambda front: front.memory_info().vms + _FREE_BYTES["front"]),
        0.5,
        3.0,
    ),
    "lead-replaced": Kind("lead", _lead_replaced),
}


def chosen_kinds(names: str) -> list[str]:
    """Return the kinds of faults whose names, or a word of them, are in `names`; raises ConfigError."""
    chosen: list[str] = []
    for name in (part.strip() for part in names.split(",")):
        matching = [kind for kind in KINDS if name in {"all", kind, *kind.split("-")}]
        if not matching and name != "none":
            raise ConfigError(f"--faults {name}: write all, none, or some of {', '.join(KINDS)}")
        chosen += [kind for kind in matching if kind not in chosen]
    return chosen


def faults(seed: int, kinds: Collection[str], pace: float = 1.0) -> Iterator[Fault]:
    """Yield faults of these kinds in the order in which they begin; pauses are divided by `pace`."""
    tracks = sorted({KINDS[kind].track for kind in kinds})
    return heapq.merge(
        *(_track(seed, track, kinds, pace) for track in tracks), key=lambda fault: fault.begins
    )


def _track(seed: int, track: str, kinds: Collection[str], pace: float) -> Iterator[Fault]:
    rng = random.Random(f"{seed} faults {track}")  # noqa: S311 - a seeded choice is wanted
    own = sorted(kind for kind in kinds if KINDS[kind].track == track)
    now, number = 0.0, 0
    while True:
        now += rng.uniform(*_PAUSES[track]) / pace
        kind = rng.choice(own)
        seconds = rng.uniform(KINDS[kind].shortest, KINDS[kind].longest)
        yield Fault(now, track, number, kind, seconds, rng.random())
        now += seconds
        number += 1
