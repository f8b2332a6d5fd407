"""Leads and backs on one machine: while one of them computes, the others take longer."""

from collections.abc import Callable
from dataclasses import dataclass

from lead.simulation.clock import VirtualClock

_ONLY_LEAD = "lead"


@dataclass(frozen=True, slots=True)
class Contention:
    """How many times as long it takes while the other computes: a step of a lead, a decode of a back.

    `one_core_each`: all leads share one core in equal parts, and all backs another; else nobody shares.
    """

    lead: float = 1.0
    back: float = 1.0
    one_core_each: bool = False


@dataclass(slots=True)
class _SharedJob:
    """`left`: seconds of it that are to be done, alone; since `since` they pass `factor` times as slowly."""

    left: float
    done: Callable[[], None]
    since: float
    factor: float = 1.0
    n_changes: int = 0

    def set_factor(self, factor: float, now: float) -> None:
        self.left = max(0.0, self.left - (now - self.since) / self.factor)
        self.since, self.factor = now, factor
        self.n_changes += 1


class SharedMachine:
    """Runs at most one job of each lead and one of each back."""

    def __init__(self, clock: VirtualClock, contention: Contention) -> None:
        self._clock = clock
        self._contention = contention
        self._leads: dict[str, _SharedJob] = {}
        self._backs: dict[str, _SharedJob] = {}

    def run_lead(self, seconds: float, done: Callable[[], None], name: str = _ONLY_LEAD) -> None:
        """A step of the lead `name` that would take `seconds` alone."""
        self._run(self._leads, name, seconds, done)

    def run_back(self, name: str, seconds: float, done: Callable[[], None]) -> None:
        """A decode of the back `name` that would take `seconds` alone."""
        self._run(self._backs, name, seconds, done)

    def _run(self, jobs: dict[str, _SharedJob], name: str, seconds: float, done: Callable[[], None]) -> None:
        def end() -> None:
            del jobs[name]
            self._balance()
            done()

        jobs[name] = _SharedJob(seconds, end, self._clock.now)
        self._balance()

    def _balance(self) -> None:
        """Somebody has begun or ended."""
        self._set_pace(self._leads, self._contention.lead if self._backs else 1.0)
        self._set_pace(self._backs, self._contention.back if self._leads else 1.0)

    def _set_pace(self, jobs: dict[str, _SharedJob], factor: float) -> None:
        if self._contention.one_core_each:
            factor *= len(jobs)
        for job in jobs.values():
            self._go_on(job, factor)

    def _go_on(self, job: _SharedJob, factor: float) -> None:
        if job.n_changes and factor == job.factor:
            return
        job.set_factor(factor, self._clock.now)
        n_changes = job.n_changes

        def end() -> None:
            if job.n_changes == n_changes:
                job.done()

        self._clock.after(job.left * factor, end)
