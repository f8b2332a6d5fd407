"""Faults do what they claim, end again, and come as the seed says."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from lab.campaign import injector as module
from lab.campaign.injector import KINDS, Fault, Injector, faults
from lab.campaign.requests import COMPLETION, draw, with_logprobs
from lab.campaign.site import Site
from lab.parts.link import Link
from lead.http.generation_request import ChatRequest
from lead.http.routes.completions import CompletionRequest

READY = "03:00:00 lead INFO: ready: 4 slots"


@pytest.fixture
def process():
    """A process that waits for its end."""
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
        replacing=False,
        is_starved=False,
        lead_processes=lambda: {"tokenizer": process},
        links=[Link("127.0.0.1", 1), Link("127.0.0.1", 1)],
    )


def fault(kind, choice=0.0, seconds=0.0):
    return Fault(0.0, kind.partition("-")[0], 0, kind, seconds, choice)


def during(site, kind, choice=0.0):
    return KINDS[kind].action(site, fault(kind, choice))


def next_change(process):
    """The status of a child once it has stopped or continued: a signal takes a moment."""
    return os.waitpid(process.pid, os.WUNTRACED | os.WCONTINUED)[1]


@pytest.mark.parametrize("kind", ["engine-killed", "tokenizer-killed"])
async def test_what_is_killed_is_gone(site, process, kind):
    async with during(site, kind):
        assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("kind", ["engine-stopped", "tokenizer-stopped"])
async def test_what_is_stopped_goes_on_afterwards(site, process, kind):
    async with during(site, kind):
        assert os.WIFSTOPPED(next_change(process))
    assert os.WIFCONTINUED(next_change(process))


async def test_an_engine_that_dies_while_it_is_stopped_needs_no_more(site, process):
    async with during(site, "engine-stopped"):
        process.kill()
        process.wait()


async def test_the_engine_that_follows_a_killed_one_is_killed_too(site, process):
    site.take_ready_engine = lambda: SimpleNamespace(send_signal=lambda _: None)
    async with during(site, "engine-killed-twice"):
        assert process.is_running()
    assert process.wait() == -signal.SIGKILL


def test_the_next_engine_is_not_taken_before_it_is_ready():
    class Processless(Site):
        engine = "first"

    site = Processless(Path("model.gguf"), (), [])
    site.lead = SimpleNamespace(log="loading")
    assert site.take_ready_engine() is None
    site.lead.log = READY
    assert [site.take_ready_engine(), site.take_ready_engine()] == ["first", "first"]
    site.engine = "second"
    assert site.take_ready_engine() is None
    site.lead.log += f"\n{READY}"
    assert site.take_ready_engine() == "second"


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


async def test_faults_that_are_due_happen_in_their_order_and_are_recorded(site):
    injector = Injector(site, lambda: 5.0)
    kinds = ["link-cut", "link-pieces", "link-cut"]
    await injector.follow([fault(kind) for kind in kinds])
    assert [each.fault.kind for each in injector.happened] == kinds


# What comes


def first(n, seed=1):
    return list(islice(faults(seed, list(KINDS), 1.0), n))


def test_the_same_seed_gives_the_same_faults_of_all_kinds():
    assert first(400) == first(400)
    assert first(400) != first(400, seed=2)
    assert {fault.kind for fault in first(400)} == KINDS.keys()


def test_faults_of_one_track_do_not_overlap():
    for track in {nature.track for nature in KINDS.values()}:
        own = [fault for fault in first(400) if fault.track == track]
        assert all(a.begins + a.seconds < b.begins for a, b in pairwise(own))


def test_a_request_depends_on_seed_and_index_alone():
    assert draw(1, 7) == draw(1, 7)
    assert draw(2, 7) != draw(1, 7)


@pytest.mark.parametrize("change", [lambda request: request, with_logprobs])
def test_every_request_is_one_that_the_lead_understands(change):
    for request in (change(draw(1, index)) for index in range(300)):
        kind = CompletionRequest if request.path == COMPLETION else ChatRequest
        unknown = set(request.body) - set(kind.model_fields)
        assert not unknown, request
        kind.model_validate(request.body).check()
