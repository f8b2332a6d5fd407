"""Simulated machines: the duration of the lead's steps, alone and while backs on its machine compute."""

from collections.abc import Callable
from dataclasses import dataclass

from lab.simulation.clock import VirtualClock

LEAD = "lead"


@dataclass(frozen=True, slots=True)
class StepTable:
    """T(n) of a lead.

    `points`: (n, seconds), n ascending from 1; linear between them and beyond the last. `settling`: how much
    longer the first, second, … step takes after a change of the batch size.
    """

    name: str
    points: tuple[tuple[int, float], ...]
    settling: tuple[float, ...] = ()

    def seconds(self, n: int) -> float:
        """Return the seconds of a step with n tokens, in a series of equal steps."""
        points = self.points
        if len(points) == 1:
            return points[0][1]
        right = next((i for i, (m, _) in enumerate(points) if m >= n), len(points) - 1)
        (low, before), (high, after) = points[max(0, right - 1)], points[max(1, right)]
        if n > high:
            return after + max(0.0, (after - before) / (high - low)) * (n - high)
        return before + (after - before) * (n - low) / (high - low)


@dataclass(frozen=True, slots=True)
class HostTime:
    """The engine's own seconds between two steps, at temperature 0 (`bench overhead`).

    `step_s` for any step, another `planning_s` if drafts are planned, and `token_s` more for each draft
    token.
    """

    step_s: float = 70e-6
    planning_s: float = 110e-6
    token_s: float = 30e-6

    def of_step(self, n_draft_tokens: int, *, plans: bool) -> float:
        return self.step_s + plans * (self.planning_s + self.token_s * n_draft_tokens)


HOST = HostTime()


@dataclass(frozen=True, slots=True)
class Contention:
    """The slow-down of the lead's steps and of the back's decodes while both compute."""

    lead: float = 1.0
    back: float = 1.0


@dataclass(slots=True)
class _SharedJob:
    """A task. At the time `since` it needed `left` seconds alone; since then it is slower by `factor`."""

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
    """A lead and backs on one machine, which slow each other down."""

    def __init__(self, clock: VirtualClock, contention: Contention) -> None:
        self._clock = clock
        self._contention = contention
        self._jobs: dict[str, _SharedJob] = {}

    def run(self, name: str, seconds: float, done: Callable[[], None]) -> None:
        """Run a task that alone would take `seconds`: a step of the lead (`LEAD`), or a decode of the back
        `name`.
        """

        def end() -> None:
            del self._jobs[name]
            self._balance()
            done()

        self._jobs[name] = _SharedJob(seconds, end, self._clock.now)
        self._balance()

    def _balance(self) -> None:
        has_lead = LEAD in self._jobs
        of_lead = self._contention.lead if len(self._jobs) > 1 else 1.0
        of_back = self._contention.back if has_lead else 1.0
        for name, job in self._jobs.items():
            self._set_pace(job, of_lead if name == LEAD else of_back)

    def _set_pace(self, job: _SharedJob, factor: float) -> None:
        if job.n_changes and factor == job.factor:
            return
        job.set_factor(factor, self._clock.now)
        n_changes = job.n_changes

        def end() -> None:
            if job.n_changes == n_changes:
                job.done()

        self._clock.after(job.left * factor, end)
