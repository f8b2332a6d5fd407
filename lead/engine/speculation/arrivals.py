"""When further draft tokens of a source will arrive: how far away it is, and how fast it drafts."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants

_MAX_COMMITS = 64
"""A source that answers commits older than this is not worth waiting for."""


class Arrival(NamedTuple):
    """`n_first` more tokens in `first_in` seconds from now, each further one `per_token` later."""

    first_in: float
    n_first: int
    per_token: float

    def when(self, n_more: int) -> float:
        """Seconds from now until `n_more` tokens have arrived."""
        return self.first_in + max(0, n_more - self.n_first) * self.per_token


NOW = Arrival(0.0, 1, 0.0)


@dataclass(slots=True)
class _RunningMean:
    """With the mean deviation, as RFC 6298 computes it; None until the first sample."""

    value: float | None = None
    deviation: float = 0.0

    def learn(self, sample: float, gain: float) -> None:
        if self.value is None:
            self.value, self.deviation = sample, sample / 2
            return
        self.deviation += gain * (abs(sample - self.value) - self.deviation)
        self.value += gain * (sample - self.value)


class _State(Enum):
    """What a source does for a sequence, as far as its last draft tells."""

    SILENT = "it has sent nothing yet"
    GROWING = "its draft agrees with the text, of which it has seen all; more tokens of it may come"
    BEHIND = "its draft agrees with more text than it had seen; it may go on when it sees that"
    ANSWERING = "its draft has departed from the text; the next one is its answer to that"


@dataclass(slots=True)
class _DraftProgress:
    """A source's last draft for a sequence: it followed `base` tokens and reached to position `end`.

    `dead_since`: how many tokens were committed when its draft died; None: it is alive.
    `unseen_since`: when tokens were committed beyond those it had seen; None: it has seen all.
    """

    base: int = -1
    end: int = 0
    grown_at: float = 0.0
    dead_since: int | None = 0
    unseen_since: float | None = None

    @property
    def state(self) -> _State:
        if self.base < 0:
            return _State.SILENT
        if self.dead_since is not None:
            return _State.ANSWERING
        return _State.GROWING if self.unseen_since is None else _State.BEHIND

    @property
    def silent_since(self) -> float:
        if self.state is _State.ANSWERING and self.unseen_since is not None:
            return self.unseen_since
        return self.grown_at

    def take(self, base: int, end: int, now: float, timeline: "Timeline") -> None:
        """It has sent a draft; one that repeats what it has said before says nothing."""
        if base > self.base:
            self.base, self.end, self.grown_at = base, end, now
            self.unseen_since = timeline.passed(base)
        elif end > self.end:
            self.end, self.grown_at = end, now


class Timeline:
    """When a sequence had how many committed tokens (the last few commits), and who has drafted for it."""

    __slots__ = ("_commits", "opened_at", "progress")

    def __init__(self, n_committed: int, now: float) -> None:
        """The sources receive it at this moment."""
        self.opened_at = now
        self.progress: dict[str, _DraftProgress] = {}  # by source
        self._commits = deque([(n_committed, now)], maxlen=_MAX_COMMITS)

    @property
    def last_commit(self) -> float:
        """When that was."""
        return self._commits[-1][1]

    def commit(self, n_committed: int, now: float, dead: Iterable[str] = ()) -> None:
        """It has `n_committed` tokens, and drafts of `dead` sources disagree; sources are informed now."""
        self._commits.append((n_committed, now))
        for progress in self.progress.values():
            if progress.unseen_since is None:
                progress.unseen_since = now
        for source in dead:
            if source in self.progress:
                self.progress[source].dead_since = n_committed

    def reached(self, n_committed: int) -> float | None:
        """When it had exactly `n_committed` tokens; None if it never had, or too long ago."""
        return next((time for n, time in reversed(self._commits) if n == n_committed), None)

    def passed(self, n_committed: int) -> float | None:
        """When it first had more, as far as is remembered; None if it has no more."""
        return next((time for n, time in self._commits if n > n_committed), None)


@dataclass(slots=True)
class _Timing:
    """`first`: seconds from a commit to a new draft, of `n_first` tokens; `token`: per further token."""

    first: _RunningMean = field(default_factory=_RunningMean)
    n_first: _RunningMean = field(default_factory=_RunningMean)
    token: _RunningMean = field(default_factory=_RunningMean)
    n_pauses: int = 0  # in a row


class Arrivals:
    """What was learned about each back's times. Times are seconds of one clock."""

    def __init__(self, constants: SpeculationConstants = DEFAULTS) -> None:
        self._constants = constants
        self._sources: dict[str, _Timing] = {}

    @property
    def known(self) -> list[str]:
        """All sources that are connected or have posted."""
        return list(self._sources)

    @property
    def slowest_first(self) -> float:
        """Seconds from a commit to a new draft, of the slowest source; 0 before anything is known."""
        return max((timing.first.value or 0.0 for timing in self._sources.values()), default=0.0)

    def connect(self, sources: Iterable[str], timelines: Iterable[Timeline]) -> None:
        """These sources are connected now; all others are forgotten, also in the `timelines`."""
        names = set(sources)
        gone = self._sources.keys() - names
        self._sources = {source: self._sources.get(source, _Timing()) for source in sorted(names)}
        for timeline in timelines:
            for source in gone:
                timeline.progress.pop(source, None)

    def on_draft(
        self, timeline: Timeline, source: str, base: int, end: int, now: float, *, alive: bool
    ) -> None:
        """A draft of `source` for positions base … end - 1 arrived, dead or alive.

        Stale or repeated drafts do not count as activity, so a back cannot stall the lead by resending.
        """
        timing = self._sources.setdefault(source, _Timing())
        progress = timeline.progress.setdefault(source, _DraftProgress())
        if base >= progress.base:
            match progress.state:
                case _State.SILENT:
                    pass  # there is nothing to compare it with
                case _State.ANSWERING if base > progress.base:
                    self._learn_answer(timing, timeline, progress, base, end, now)
                case _:
                    self._learn_growth(timing, progress, end, now)
            progress.take(base, end, now, timeline)
        if alive:
            progress.dead_since = None

    def expected(self, timeline: Timeline, source: str, now: float) -> Arrival | None:
        """When more tokens arrive; None if none are expected: the source is silent, finished, or unknown."""
        timing, progress = self._sources.get(source), timeline.progress.get(source)
        if timing is None or progress is None:
            return None
        match progress.state:
            case _State.SILENT:
                return None
            case _State.GROWING:
                return self._growth(timing, timing.token, now - progress.grown_at)
            case _State.BEHIND:
                growth = self._growth(timing, timing.token, now - progress.grown_at)
                return growth or self._growth(timing, timing.first, now - (progress.unseen_since or 0.0))
            case _State.ANSWERING:
                return self._answer(timing, progress, timeline, now)

    def is_drafting(self, timeline: Timeline, now: float, patience: float) -> bool:
        """Whether a source is to answer for a sequence and was silent for at most `patience` seconds."""
        since = (
            progress.silent_since if (progress := timeline.progress.get(source)) else timeline.opened_at
            for source in self._sources
        )
        return any(now - each <= patience for each in since)

    def describe(self, source: str) -> dict[str, float | None]:
        """For `GET /v1/speculation`, in milliseconds."""
        timing = self._sources.get(source, _Timing())
        return {"first_draft_ms": _ms(timing.first.value), "token_ms": _ms(timing.token.value)}

    def _growth(self, timing: _Timing, mean: _RunningMean, waited: float) -> Arrival | None:
        """When a living draft grows: a token each `mean` seconds, of which its source has `waited` some."""
        if timing.token.value is None or self._is_late(mean, waited):
            return None
        return Arrival(self._remaining(mean, waited), 1, timing.token.value)

    def _answer(
        self, timing: _Timing, progress: _DraftProgress, timeline: Timeline, now: float
    ) -> Arrival | None:
        """A new draft, after the last one has died."""
        if self._is_late(timing.first, now - progress.silent_since):
            return None
        n_first = max(1, round(timing.n_first.value or 1.0))
        first_in = self._remaining(timing.first, now - timeline.last_commit)
        return Arrival(first_in, n_first, timing.token.value or 0.0)

    def _is_late(self, mean: _RunningMean, waited: float) -> bool:
        """So much later than usual that it is not worth waiting; also if nothing is known."""
        if mean.value is None:
            return True
        constants = self._constants
        latest = mean.value + constants.patience_deviations * mean.deviation + constants.min_patience_s
        return waited > latest

    def _remaining(self, mean: _RunningMean, waited: float) -> float:
        """How much longer it will take; what is overdue is late by about as much as others were."""
        remaining = (mean.value or 0.0) - waited
        return remaining if remaining > 0 else max(mean.deviation, self._constants.min_remaining_s)

    def _learn_answer(  # noqa: PLR0917 - what a draft is compared with
        self, timing: _Timing, timeline: Timeline, progress: _DraftProgress, base: int, end: int, now: float
    ) -> None:
        """A draft that was under way when the text departed from the last one is no answer to that."""
        if base >= (progress.dead_since or 0) and (at := timeline.reached(base)) is not None:
            timing.first.learn(max(0.0, now - at), self._constants.arrival_gain)
            timing.n_first.learn(end - base, self._constants.arrival_gain)

    def _learn_growth(self, timing: _Timing, progress: _DraftProgress, end: int, now: float) -> None:
        if end <= progress.end:
            return
        per_token = (now - progress.grown_at) / (end - progress.end)
        if timing.token.value is not None and per_token > self._constants.pause_factor * timing.token.value:
            timing.n_pauses += 1
            if timing.n_pauses < self._constants.max_pauses:
                return
            timing.token = _RunningMean()
        timing.n_pauses = 0
        timing.token.learn(per_token, self._constants.arrival_gain)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)
