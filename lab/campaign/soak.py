"""`python -m bench soak`: checks the answers and the memory of a lead with backs while its use changes.

The lead is in exact mode, with more texts than its disk cache holds. Of its two backs, one is always wrong.
One to eight clients hold growing conversations, and some disconnect. Other programs come, take most of the
machine, and leave. Backs are suspended, killed and restarted. In the pauses a second lead, which never
drafts, answers the same requests; during one long pause the first lead sleeps.

The exit status is 1 if an answer was changed, lost, or left without an end, if a process died or was left
behind, if memory, descriptors or processes grew after 20 minutes, or if T(n) is implausible.
"""

import argparse
import asyncio
import contextlib
import itertools
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx
import psutil

from lab.campaign import campaign
from lab.campaign.asking import Asker, Outcome
from lab.campaign.injector import Fault, Injector
from lab.campaign.requests import MixedRequest, draw, next_turn
from lab.campaign.site import Site
from lab.campaign.soak_findings import Findings, rows, show_times
from lab.parts import report
from lab.parts.models import useless_draft
from lab.parts.processes import Program
from shared.errors import ConfigError
from shared.model_files.builtin import builtin_draft, builtin_target

_MAX_CLIENTS = 8
_PAIRS_PER_CYCLE = 3
_LOOPS_PER_CORE = 2
"""Beside two busy loops, a program with one thread gets a third of a core."""
_SLEEPS_AFTER = 0.7
"""The share of the time after which the lead is left alone until it sleeps: T(n) has drifted far by then."""
_LONG_TEXT = 1100
"""A prompt of this many tokens ends its conversation, because the next turn may not fit into `_N_CTX`."""
_CHARACTERS = 2.5
"""The average number of characters of a token."""
_N_CTX, _N_SLOTS = 2048, 4
_GROWING = {"chat", "second turn", "logprobs", "penalties", "stop strings", "prediction", "private"}
_FAULTS = ("back-stopped", "back-stopped", "back-stopped", "back-killed")
_POLL_SECONDS = 1.0
_ENDING_SECONDS = 5.0
_MAX_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a soak test. n_loops: the number of busy loops beside the lead.

    In a phase without clients, texts are compared.
    """

    seconds: float
    n_clients: int
    n_loops: int

    @property
    def kind(self) -> str:
        return "pause" if not self.n_clients else "busy" if self.n_loops else "quiet"


def phases(seed: int, seconds: float, n_cores: int) -> Iterator[Phase]:
    """Yield phases of about `seconds` in all.

    In each cycle quiet and busy phases alternate, and a pause follows. One of the pauses is long.
    """
    rng = random.Random(f"{seed} phases")  # noqa: S311 - a seeded choice is wanted
    unit, used, sleeps, has_slept = unit_of(seconds), 0.0, False, False
    while used < seconds or sleeps:  # T(n) of an engine that sleeps at the end would not be seen
        cycle = [
            Phase(rng.uniform(0.3, 1.5) * unit, rng.randint(1, _MAX_CLIENTS), n_loops)
            for n_loops in (0, _LOOPS_PER_CORE * n_cores) * _PAIRS_PER_CYCLE
        ]
        sleeps = not has_slept and used > _SLEEPS_AFTER * seconds
        has_slept |= sleeps
        cycle.append(Phase(unit * (3 if sleeps else 1), 0, 0))
        used += sum(phase.seconds for phase in cycle)
        yield from cycle


def unit_of(seconds: float) -> float:
    """Return the usual length of a phase, in seconds, in a run of `seconds`."""
    return min(60.0, seconds / 20)


def back_faults(seed: int, unit: float) -> Iterator[Fault]:
    """Yield faults that suspend a back, or sometimes kill it. Most backs live long enough to learn."""
    rng = random.Random(f"{seed} backs")  # noqa: S311 - as above
    now = 0.0
    for number in itertools.count():
        now += rng.uniform(1.5, 4.0) * unit
        seconds = rng.uniform(0.05, 1.0) * unit
        yield Fault(now, "back", number, rng.choice(_FAULTS), seconds, rng.random())
        now += seconds


def main(arguments: Sequence[str]) -> None:
    """Run the soak; status 1 if any check fails."""
    settings = _parse(arguments)
    findings = Findings()
    with contextlib.suppress(KeyboardInterrupt):  # then report the findings so far
        asyncio.run(_run(settings, findings))
    failures = findings.failures()
    shown = rows(findings)
    report.show("Soak", shown, {"what": ("what", ""), "value": ("value", "")})
    show_times(findings.samples)
    print(*(f"FAILED {line}" for line in failures[:_MAX_SHOWN]), sep="\n")
    for failure in findings.tally.failures[:_MAX_SHOWN]:
        outcome = failure.outcome
        print(f"request {outcome.request.index}: {', '.join(failure.reasons)}; {outcome.errors}")
    report.finish("soak", shown, settings, failures=failures)
    if failures:
        sys.exit(1)


async def _run(settings: argparse.Namespace, findings: Findings) -> None:
    seconds = 60 * settings.minutes
    with tempfile.TemporaryDirectory() as folder:
        disk = ("--cache-disk", folder, "--cache-disk-size", "32", "--cache-ram", "32")
        sleep = ("--sleep-idle-seconds", str(2 * unit_of(seconds)))
        common = ("--exact", "on", "--parallel", str(_N_SLOTS), "--ctx-size", str(_N_SLOTS * _N_CTX))
        lead = (*common, *disk, *sleep, "--ping-seconds", "2")
        alone = (*common, "--no-ngram", "--suffix-memory", "0", "--policy", "off")
        target, drafts = builtin_target(), (builtin_draft(), useless_draft())
        async with Site(target, (), alone) as reference:
            reference.lead.name = "lead alone"
            async with Site(target, drafts, lead) as site:
                soak = Soak(site, reference, findings, settings.seed, seconds)
                try:
                    await soak.run()
                except* ConfigError as errors:
                    findings.deaths.append(str(campaign.first_error(errors)))
                left = list(_processes(site))
            soak.read_logs()
            _, alive = psutil.wait_procs(left, timeout=_ENDING_SECONDS)
            findings.deaths += [f"left behind: {each}" for each in alive]


def _processes(site: Site) -> Iterator[psutil.Process]:
    for program in (site.lead, *site.backs):
        with contextlib.suppress(psutil.NoSuchProcess):
            front = psutil.Process(program.process.pid)
            yield from (front, *front.children(recursive=True))


class Soak:
    """Runs one soak test of `seconds`: its phases, clients, faults and checks."""

    def __init__(self, site: Site, reference: Site, findings: Findings, seed: int, seconds: float) -> None:
        self._site, self._reference, self._findings = site, reference, findings
        self._seed, self._seconds, self._unit = seed, seconds, unit_of(seconds)
        self._phase = Phase(0.0, 0, 0)
        self._begun = time.monotonic()
        self._indices = itertools.count()
        self._n_read: dict[Program, int] = {}
        self._outcomes: list[Outcome] = []
        """The outcomes since the last pause."""

    async def run(self) -> None:
        """Run all phases. Raises an exception group of ConfigError if a lead ends by itself."""
        injector = Injector(self._site, self._clock)
        async with campaign.asking(self._site, self._clock) as asker, asyncio.TaskGroup() as group:
            faults = group.create_task(injector.follow(back_faults(self._seed, self._unit)))
            watching = group.create_task(self._watch())
            clients = [group.create_task(self._hold_talks(asker, number)) for number in range(_MAX_CLIENTS)]
            for phase in phases(self._seed, self._seconds, os.cpu_count() or 1):
                await self._run_phase(phase)
            for task in (*clients, faults, watching):
                task.cancel()
        await self._sample()

    def read_logs(self) -> None:
        """Read the lines that the programs have logged since the last call."""
        for program in (self._site.lead, self._reference.lead, *self._site.backs):
            self._n_read.setdefault(program, 0)
        for program, n_read in self._n_read.items():
            lines = program.lines(n_read)
            self._n_read[program] = n_read + len(lines)
            for line in lines:
                self._findings.read(line, f"minute {self._clock() / 60:.1f}, {program.name}")

    def _clock(self) -> float:
        return time.monotonic() - self._begun

    async def _run_phase(self, phase: Phase) -> None:
        self._phase = phase
        end = self._clock() + phase.seconds
        busy = f"ulimit -t {math.ceil(phase.seconds)}; while :; do :; done"
        with contextlib.ExitStack() as stack:
            for _ in range(phase.n_loops):
                stack.enter_context(Program("loop", "-c", busy, command=("sh",)))
            if phase.kind == "pause":
                await self._compare(end)
            await asyncio.sleep(max(0.0, end - self._clock()))
            self._findings.seconds[phase.kind] += phase.seconds

    async def _hold_talks(self, asker: Asker, number: int) -> None:
        """Hold one client's conversations, one after the other, with pauses in which texts may be stored."""
        rng = random.Random(f"{self._seed} client {number}")  # noqa: S311 - as above
        request: MixedRequest | None = None
        while True:
            if number >= self._phase.n_clients:
                await asyncio.sleep(_POLL_SECONDS)
                continue
            request = request or self._first_turn(rng)
            outcome = await asker.ask(request)
            self._outcomes.append(outcome)
            self._findings.n_tokens[self._phase.kind] += outcome.answer.n_generated or 0
            request = self.next_turn(outcome)
            if rng.random() < 0.2:  # noqa: PLR2004 - some people think before they go on
                await asyncio.sleep(rng.uniform(0.0, 0.1) * self._unit)

    def _first_turn(self, rng: random.Random) -> MixedRequest:
        request = draw(self._seed, next(self._indices))
        if request.kind not in _GROWING:
            return request
        return replace(request, body={**request.body, "max_tokens": rng.randint(20, 200)})

    @staticmethod
    def next_turn(outcome: Outcome) -> MixedRequest | None:
        """Return the client's next request after an outcome; None: the conversation is over."""
        request, answer = outcome.request, outcome.answer
        if outcome.lost or not answer.choices or (answer.n_prompt or 0) > _LONG_TEXT:
            return None
        if request.kind not in _GROWING | {"next turn"}:
            return None
        n_characters = sum(len(message["content"]) for message in request.body["messages"])
        if n_characters > _CHARACTERS * _LONG_TEXT:  # a client that hung up has no count of tokens
            return None
        return next_turn(request, answer.choices[0].text)

    async def _compare(self, end: float) -> None:
        """Check the ends of all answers since the last pause, and compare as many texts with the reference as
        time allows.
        """
        outcomes, self._outcomes = self._outcomes, []
        order = random.Random(self._clock()).sample(outcomes, len(outcomes))  # noqa: S311 - any order
        asked = (each.request for each in order if not each.lost)
        in_time = itertools.takewhile(lambda _: self._clock() < end, asked)
        tally = self._findings.tally
        try:
            tally.expected = await campaign.answers(self._reference, in_time)
        except ConfigError as error:
            self._findings.deaths.append(str(error))
            tally.expected = {}
        self._findings.n_compared += len(tally.expected)
        for outcome in outcomes:
            tally.add(outcome)

    async def _watch(self) -> None:
        told = 0.0
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            self._site.require_lead()
            self._reference.require_lead()
            self.read_logs()
            self._check_backs()
            if self._clock() - told >= self._unit:
                told = self._clock()
                await self._sample()
                self._tell()

    def _check_backs(self) -> None:
        site = self._site
        for index, back in enumerate(site.backs):
            if not site.restarting[index].locked() and (status := back.process.poll()) is not None:
                where = f"minute {self._clock() / 60:.1f}, back {index}"
                self._findings.deaths.append(f"{where}: ended with status {status}")
                site.start_back(index)

    async def _sample(self) -> None:
        planner: Mapping[str, Any] | None = None
        async with httpx.AsyncClient(base_url=self._site.url, trust_env=False, timeout=30.0) as http:
            with contextlib.suppress(httpx.TransportError):
                planner = (await http.get("/v1/speculation")).json().get("planner")
        self._findings.add(self._clock(), self._site.usage(), planner or {})

    def _tell(self) -> None:
        findings, sample = self._findings, self._findings.samples[-1]
        memory = ", ".join(f"{name} {usage.megabytes:.0f}" for name, usage in sample.usage.items())
        costs = ", ".join(f"{n}: {milliseconds:g}" for n, milliseconds in list(sample.step_ms.items())[:8])
        tally, phase = findings.tally, self._phase
        print(
            f"minute {sample.seconds / 60:.1f}, {phase.kind}, {phase.n_clients} clients: "
            f"{tally.n_requests + len(self._outcomes)} requests, {findings.n_compared} compared, "
            f"{tally.n_changed} changed, {tally.n_lost} lost, {len(findings.deaths)} deaths; "
            f"MB: {memory}; step_ms {costs}",
            flush=True,
        )


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1, help="seed of requests, phases and faults")
    report.add_options(parser)
    return report.parse(parser, arguments, {"minutes": 2.0})
