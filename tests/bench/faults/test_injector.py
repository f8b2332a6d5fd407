import asyncio
import os
import resource
import signal
import subprocess
import sys
from itertools import islice, pairwise
from types import SimpleNamespace

import psutil
import pytest

from bench.faults import injector as module
from bench.faults.injector import KINDS, Fault, Injector, chosen_kinds, faults
from bench.link import Link


@pytest.fixture
def process():
    """A process that waits to be ended."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        yield psutil.Process(process.pid)
        process.send_signal(signal.SIGCONT)
        process.kill()


@pytest.fixture
def site(process):
    return SimpleNamespace(
        engine=process,
        take_ready_engine=lambda: process,
        front=process,
        lead_processes=lambda: {"tokenizer": process},
        links=[Link("127.0.0.1", 1), Link("127.0.0.1", 1)],
    )


def fault(kind, choice=0.0, seconds=0.0):
    return Fault(0.0, kind.partition("-")[0], 0, kind, seconds, choice)


def next_change(process):
    """The status of a child when it has stopped or goes on: a signal takes a moment."""
    return os.waitpid(process.pid, os.WUNTRACED | os.WCONTINUED)[1]


def during(site, kind, choice=0.0):
    return KINDS[kind].action(site, fault(kind, choice))


@pytest.mark.parametrize("kind", ["engine-killed", "tokenizer-killed"])
async def test_what_is_killed_is_gone(site, process, kind):
    async with during(site, kind):
        assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("kind", ["engine-stopped", "tokenizer-stopped"])
async def test_what_is_stopped_goes_on_afterwards(site, process, kind):
    async with during(site, kind):
        assert os.WIFSTOPPED(next_change(process))
    assert os.WIFCONTINUED(next_change(process))


async def test_the_engine_that_follows_a_killed_one_is_killed_too(site, process):
    site.take_ready_engine = lambda: SimpleNamespace(send_signal=lambda _: None)
    async with during(site, "engine-killed-twice"):
        assert process.is_running()
    assert process.wait() == -signal.SIGKILL


async def test_an_engine_that_dies_while_it_is_stopped_needs_no_more(site, process):
    async with during(site, "engine-stopped"):
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        ("lead-few-descriptors", resource.RLIMIT_NOFILE),
        ("lead-little-memory", resource.RLIMIT_AS),
        ("engine-out-of-memory", resource.RLIMIT_AS),
    ],
)
async def test_a_limit_holds_for_the_time_of_the_fault(site, process, kind, limit):
    before = process.rlimit(limit)
    async with during(site, kind):
        soft, hard = process.rlimit(limit)
        assert soft != before[0]
        assert hard == before[1]
    assert process.rlimit(limit) == before


@pytest.mark.parametrize(("choice", "chosen"), [(0.2, 0), (0.7, 1)])
async def test_one_link_is_made_worse_and_perfect_again(site, choice, chosen):
    link, other = site.links[chosen], site.links[1 - chosen]
    async with during(site, "link-300-ms", choice):
        assert (link.delay(), other.delay()) == (0.15, 0.0)
    assert link.delay() == 0.0


async def test_what_happened_is_recorded_with_its_times(site):
    ticks = iter((10.0, 12.0))
    injector = Injector(site, lambda: next(ticks))
    await injector.inject(fault("link-cut"))
    assert [(each.fault.kind, each.began, each.ended) for each in injector.happened] == [
        ("link-cut", 10.0, 12.0)
    ]


async def test_an_engine_that_is_not_there_cannot_be_killed(site):
    site.take_ready_engine = lambda: None
    injector = Injector(site, lambda: 0.0)
    await injector.inject(fault("engine-killed"))
    assert injector.happened == []


async def test_faults_that_are_due_happen_in_their_order(site):
    injector = Injector(site, lambda: 5.0)
    await injector.follow([fault("link-cut"), fault("link-pieces"), fault("link-cut")])
    assert [each.fault.kind for each in injector.happened] == ["link-cut", "link-pieces", "link-cut"]


@pytest.mark.parametrize("kinds", [("back-killed", "back-flapping"), ("back-flapping", "back-killed")])
async def test_a_back_is_never_started_beside_another_in_its_place(site, kinds, monkeypatch):
    monkeypatch.setattr(module, "_FLAP_SECONDS", 0.0)
    site.backs, site.restarting, running = ["back"], [asyncio.Lock()], [1]
    site.kill_back = lambda _: running.append(running[-1] - 1)
    site.start_back = lambda _: running.append(running[-1] + 1)
    injector = Injector(site, lambda: 0.0)
    await asyncio.gather(*(injector.inject(fault(kind)) for kind in kinds))
    assert set(running) == {0, 1}
    assert running[-1] == 1


# The schedule

ALL = list(KINDS)


def first(n, seed=1, kinds=ALL, pace=1.0):
    return list(islice(faults(seed, kinds, pace), n))


def test_the_same_seed_gives_the_same_faults():
    assert first(200) == first(200)
    assert first(200) != first(200, seed=2)


def test_faults_of_one_track_do_not_overlap():
    for track in {nature.track for nature in KINDS.values()}:
        own = [fault for fault in first(400) if fault.track == track]
        assert all(a.begins + a.seconds < b.begins for a, b in pairwise(own))


def test_every_kind_comes():
    assert {fault.kind for fault in first(400)} == set(ALL)


def test_the_engine_is_left_alone_for_5_to_15_seconds():
    killed = first(100, kinds=["engine-killed"])
    pauses = [b.begins - a.begins for a, b in pairwise(killed)]
    assert min(pauses) >= 5
    assert max(pauses) <= 15


def test_faults_of_one_part_do_not_depend_on_which_others_are_chosen():
    engine = [kind for kind in ALL if kind.startswith("engine")]
    alone = first(20, kinds=engine)
    assert [fault for fault in first(400) if fault.track == "engine"][:20] == alone


def test_kinds_are_chosen_by_name_or_by_their_first_word():
    assert chosen_kinds("link-cut,engine") == [
        "link-cut",
        "engine-killed",
        "engine-killed-twice",
        "engine-stopped",
        "engine-out-of-memory",
    ]
    assert chosen_kinds("all") == ALL
    assert chosen_kinds("none") == []
