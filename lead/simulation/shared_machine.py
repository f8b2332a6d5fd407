"""A lead and its backs on one machine: while one of them computes, the other takes longer."""

from collections.abc import Callable
from dataclasses import dataclass

from lead.simulation.clock import VirtualClock


@dataclass(frozen=True, slots=True)
class Contention:
    """How many times as long it takes while the other computes: a step of the lead, a decode of a back."""

    lead: float = 1.0
    back: float = 1.0


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
    """Runs at most one job of the lead and one of each back."""

    def __init__(self, clock: VirtualClock, contention: Contention) -> None:
        self._clock = clock
        self._contention = contention
        self._lead: _SharedJob | None = None
        self._backs: dict[str, _SharedJob] = {}

    def run_lead(self, seconds: float, done: Callable[[], None]) -> None:
        """A step that would take `seconds` alone."""

        def end() -> None:
            self._lead = None
            self._balance()
            done()

        self._lead = _SharedJob(seconds, end, self._clock.now)
        self._balance()

    def run_back(self, name: str, seconds: float, done: Callable[[], None]) -> None:
        """A decode of the back `name` that would take `seconds` alone."""

        def end() -> None:
            del self._backs[name]
            self._balance()
            done()

        self._backs[name] = _SharedJob(seconds, end, self._clock.now)
        self._balance()

    def _balance(self) -> None:
        """Somebody has begun or ended."""
        if self._lead:
            self._go_on(self._lead, self._contention.lead if self._backs else 1.0)
        for job in self._backs.values():
            self._go_on(job, self._contention.back if self._lead else 1.0)

    def _go_on(self, job: _SharedJob, factor: float) -> None:
        if job.n_changes and factor == job.factor:
            return
        job.set_factor(factor, self._clock.now)
        n_changes = job.n_changes

        def end() -> None:
            if job.n_changes == n_changes:
                job.done()

        self._clock.after(job.left * factor, end)
