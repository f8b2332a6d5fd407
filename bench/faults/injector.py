"""Makes the faults of a schedule happen to real programs, and undoes those that last."""

import asyncio
import random
import resource
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass

import psutil

from bench.faults.schedule import Fault
from bench.faults.site import Site
from bench.hostile import n_frames_sent
from bench.link import Link
from bench.processes import Program

_N_FLAPS, _FLAP_SECONDS = 2, 0.7
_DELAY_SECONDS = 0.15
"""Each way."""
_THROTTLED_BYTES_PER_SECOND = 2000.0
_MOST_PIECE_BYTES, _MOST_PIECE_DELAY_SECONDS = 23, 0.02
_DEADLY = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT)
"""What the kernel ends processes with, and what their native code makes them end with."""
_FREE_DESCRIPTORS = 3
_FREE_BYTES = {"engine": 0, "front": 8 << 20}
"""Address space that is left to a process: the engine soon fails to allocate, the front has to make do."""


Action = Callable[[Site, Fault], AbstractAsyncContextManager[None]]


class NothingThereError(Exception):
    """The fault has nothing to apply to: the process is just being started again."""


@dataclass(frozen=True, slots=True)
class Happened:
    """A fault that took effect, with its times in seconds of the campaign's clock."""

    fault: Fault
    began: float
    ended: float


class Injector:
    """Applies faults to a site; `happened` lists those that took effect, in the order in which they ended."""

    def __init__(self, site: Site, clock: Callable[[], float]) -> None:
        self._site = site
        self._clock = clock
        self.happened: list[Happened] = []

    async def follow(self, schedule: Iterable[Fault]) -> None:
        """Let each fault begin at its time, until cancelled; those that last are undone then."""
        async with asyncio.TaskGroup() as group:
            for fault in schedule:
                await asyncio.sleep(max(0.0, fault.begins - self._clock()))
                group.create_task(self.inject(fault))

    async def inject(self, fault: Fault) -> None:
        """One fault, from its beginning to its end."""
        began = self._clock()
        try:
            async with ACTIONS[fault.kind](self._site, fault):
                try:
                    await asyncio.sleep(fault.seconds)
                finally:
                    self.happened.append(Happened(fault, began, self._clock()))
        except NothingThereError:
            pass


def _engine(site: Site, fault: Fault) -> psutil.Process:
    del fault
    if engine := site.take_ready_engine():
        return engine
    raise NothingThereError


def _tokenizer(site: Site, fault: Fault) -> psutil.Process:
    """The process that forks tokenizers, or one of its forks."""
    if forking := site.lead_processes().get("tokenizer"):
        processes = [forking, *forking.children()]
        return processes[int(fault.choice * len(processes))]
    raise NothingThereError


def _back(site: Site, fault: Fault) -> int:
    return int(fault.choice * len(site.backs))


def _link(site: Site, fault: Fault) -> Link:
    return site.links[int(fault.choice * len(site.links))]


def _killed(find: Callable[[Site, Fault], psutil.Process], *signals: signal.Signals) -> Action:
    """By one of these signals."""

    @asynccontextmanager
    async def action(site: Site, fault: Fault) -> AsyncIterator[None]:
        with suppress(psutil.NoSuchProcess):
            find(site, fault).send_signal(signals[fault.number % len(signals)])
        yield

    return action


@asynccontextmanager
async def _engine_killed_twice(site: Site, fault: Fault) -> AsyncIterator[None]:
    """The next one is killed, too, most likely while it loads the model."""
    async with _killed(_engine, *_DEADLY)(site, fault):
        yield
    with suppress(psutil.NoSuchProcess):
        if engine := site.engine:
            engine.kill()


def _stopped(find: Callable[[Site, Fault], psutil.Process]) -> Action:
    """SIGSTOP, and SIGCONT in the end if nobody has killed the process meanwhile."""

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
async def _limited(process: psutil.Process, kind: int, most: int) -> AsyncIterator[None]:
    """Within this context a resource of the process is limited (`prlimit`)."""
    try:
        before, hard = process.rlimit(kind)
        process.rlimit(kind, (most, hard))
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


def _lead_little_memory(site: Site, fault: Fault) -> AbstractAsyncContextManager[None]:
    del fault
    return _limited(site.front, resource.RLIMIT_AS, site.front.memory_info().vms + _FREE_BYTES["front"])


def _lead_few_descriptors(site: Site, fault: Fault) -> AbstractAsyncContextManager[None]:
    del fault
    return _limited(site.front, resource.RLIMIT_NOFILE, site.front.num_fds() + _FREE_DESCRIPTORS)


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
async def _back_stopped(site: Site, fault: Fault) -> AsyncIterator[None]:
    back = site.backs[_back(site, fault)]
    back.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        back.signal(signal.SIGCONT)


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
    """Another lead takes over, and the old one finishes its answers."""
    del fault
    if site.replacing:
        raise NothingThereError
    replacing = asyncio.ensure_future(asyncio.to_thread(site.replace_lead))
    try:
        await asyncio.shield(replacing)
        yield
    finally:
        await replacing  # even if the campaign ends meanwhile: there are two leads until it is done


@asynccontextmanager
async def _back_hostile(site: Site, fault: Fault) -> AsyncIterator[None]:
    with Program("bench.hostile", "--lead", site.url, "--seed", str(fault.number)) as program:
        try:
            yield
        finally:
            program.process.kill()
            site.n_hostile_frames += n_frames_sent(program.log)


def _link_worse(change: Callable[[Link, Fault], None]) -> Action:
    """The action that makes one link worse by `change`, and perfect again in the end."""

    @asynccontextmanager
    async def action(site: Site, fault: Fault) -> AsyncIterator[None]:
        link = _link(site, fault)
        change(link, fault)
        try:
            yield
        finally:
            link.restore()

    return action


def _cut(link: Link, fault: Fault) -> None:
    del fault
    link.cut()


def _stop_flow(link: Link, fault: Fault) -> None:
    del fault
    link.stop_flow()


def _slow(link: Link, fault: Fault) -> None:
    del fault
    link.delay = lambda: _DELAY_SECONDS


def _throttle(link: Link, fault: Fault) -> None:
    del fault
    link.bytes_per_second = _THROTTLED_BYTES_PER_SECOND


def _in_pieces(link: Link, fault: Fault) -> None:
    """Each message arrives in many parts, at uneven times."""
    rng = random.Random(fault.number)  # noqa: S311 - a seeded choice is wanted
    link.most_bytes = _MOST_PIECE_BYTES
    link.delay = lambda: rng.uniform(0.0, _MOST_PIECE_DELAY_SECONDS)


ACTIONS: Mapping[str, Action] = {
    "engine-killed": _killed(_engine, *_DEADLY),
    "engine-killed-twice": _engine_killed_twice,
    "engine-stopped": _stopped(_engine),
    "engine-out-of-memory": _engine_out_of_memory,
    "tokenizer-killed": _killed(_tokenizer, signal.SIGKILL),
    "tokenizer-stopped": _stopped(_tokenizer),
    "back-killed": _back_killed,
    "back-stopped": _back_stopped,
    "back-flapping": _back_flapping,
    "back-hostile": _back_hostile,
    "link-cut": _link_worse(_cut),
    "link-black-hole": _link_worse(_stop_flow),
    "link-300-ms": _link_worse(_slow),
    "link-throttled": _link_worse(_throttle),
    "link-pieces": _link_worse(_in_pieces),
    "lead-few-descriptors": _lead_few_descriptors,
    "lead-little-memory": _lead_little_memory,
    "lead-replaced": _lead_replaced,
}
"""What each kind of fault does: entering the context applies it, leaving it undoes it."""
