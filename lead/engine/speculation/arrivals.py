"""When further draft tokens of a source will arrive: how far away it is, and how fast it drafts."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class _CommitHistory:
    """When a sequence had how many committed tokens: (n_committed, time), the last few commits."""

    opened_at: float
    commits: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_MAX_COMMITS))

    @property
    def last_commit(self) -> float:
        return self.commits[-1][1]

    def reached(self, n_committed: int) -> float | None:
        """When it had exactly `n_committed` tokens; None if it never had, or too long ago."""
        return next((time for n, time in reversed(self.commits) if n == n_committed), None)

    def passed(self, n_committed: int) -> float | None:
        """When it first had more, as far as is remembered; None if it has no more."""
        return next((time for n, time in self.commits if n > n_committed), None)


@dataclass(slots=True)
class _DraftProgress:
    """A source's last draft for a sequence: it followed `base` tokens and reached to position `end`.

    `dead_since`: how many tokens were committed when its draft was dead; None: its draft is alive.
    `unseen_since`: when tokens were committed beyond those it had seen; None: it has seen all.
    """

    base: int = -1  # it has sent nothing yet
    end: int = 0
    grown_at: float = 0.0
    dead_since: int | None = 0
    unseen_since: float | None = None


@dataclass(slots=True)
class _SourceTiming:
    """`first`: seconds from a commit to a new draft, of `n_first` tokens; `token`: per further token."""

    first: _RunningMean = field(default_factory=_RunningMean)
    n_first: _RunningMean = field(default_factory=_RunningMean)
    token: _RunningMean = field(default_factory=_RunningMean)
    n_pauses: int = 0  # in a row
    progress: dict[str, _DraftProgress] = field(default_factory=dict)


class Arrivals:
    """Times are seconds of one clock."""

    def __init__(self, constants: SpeculationConstants = DEFAULTS) -> None:
        self._constants = constants
        self._sources: dict[str, _SourceTiming] = {}
        self._histories: dict[str, _CommitHistory] = {}

    @property
    def known(self) -> list[str]:
        """All sources that are connected or have posted."""
        return list(self._sources)

    @property
    def slowest_first(self) -> float:
        """Seconds from a commit to a new draft, of the slowest source; 0 before anything is known."""
        return max((timing.first.value or 0.0 for timing in self._sources.values()), default=0.0)

    def connect(self, sources: Iterable[str]) -> None:
        """These sources are connected now; all others are forgotten."""
        names = set(sources)
        for source in self._sources.keys() - names:
            del self._sources[source]
        for source in names:
            self._sources.setdefault(source, _SourceTiming())

    def on_open(self, sequence: str, n_committed: int, now: float) -> None:
        """A sequence begins; the sources receive it at this moment."""
        self._histories[sequence] = _CommitHistory(now)
        self._histories[sequence].commits.append((n_committed, now))

    def on_commit(self, sequence: str, n_committed: int, now: float) -> None:
        """A sequence has `n_committed` tokens; the sources are informed now."""
        self._histories[sequence].commits.append((n_committed, now))
        for timing in self._sources.values():
            if (progress := timing.progress.get(sequence)) and progress.unseen_since is None:
                progress.unseen_since = now

    def on_close(self, sequence: str) -> None:
        """A sequence has ended."""
        self._histories.pop(sequence, None)
        for timing in self._sources.values():
            timing.progress.pop(sequence, None)

    def on_draft(self, sequence: str, source: str, base: int, end: int, now: float) -> None:
        """A draft of `source` for positions base … end - 1 arrived, dead or alive.

        Stale or repeated drafts do not count as activity, so a back cannot stall the lead by resending.
        """
        history = self._histories.get(sequence)
        if history is None:
            return
        timing = self._sources.setdefault(source, _SourceTiming())
        progress = timing.progress.setdefault(sequence, _DraftProgress())
        if base < progress.base:
            return
        gain = self._constants.arrival_gain
        if progress.dead_since is None or base == progress.base:
            self._learn_growth(timing, progress, end, now)
        elif progress.base >= 0 and base >= progress.dead_since and (at := history.reached(base)) is not None:
            timing.first.learn(max(0.0, now - at), gain)
            timing.n_first.learn(end - base, gain)
        if base > progress.base:
            progress.base, progress.end, progress.grown_at = base, end, now
            progress.unseen_since = history.passed(base)
        elif end > progress.end:
            progress.end, progress.grown_at = end, now

    def on_draft_alive(self, sequence: str, source: str) -> None:
        """The draft that has just arrived is on the board."""
        self._sources[source].progress[sequence].dead_since = None

    def on_draft_dead(self, sequence: str, source: str, n_committed: int) -> None:
        """Its draft was removed from the board when `n_committed` tokens were committed."""
        if (timing := self._sources.get(source)) and (progress := timing.progress.get(sequence)):
            progress.dead_since = n_committed

    def sources(self, sequence: str) -> list[str]:
        """Those that have drafted for `sequence`."""
        return [name for name, timing in self._sources.items() if sequence in timing.progress]

    def expected(self, sequence: str, source: str, now: float) -> Arrival | None:
        """When more tokens arrive; None if none are expected: the source is silent, finished, or unknown."""
        timing, history = self._sources.get(source), self._histories.get(sequence)
        progress = timing.progress.get(sequence) if timing else None
        if timing is None or history is None or progress is None:
            return None
        if progress.dead_since is None:
            return self._growth(timing, progress, now)
        if self._is_late(timing.first, now - _silent_since(progress, history)):
            return None
        n_first = max(1, round(timing.n_first.value or 1.0))
        first_in = self._remaining(timing.first, now - history.last_commit)
        return Arrival(first_in, n_first, timing.token.value or 0.0)

    def is_drafting(self, sequence: str, now: float, patience: float) -> bool:
        """Whether a source is to answer for `sequence` and was silent for at most `patience` seconds."""
        history = self._histories.get(sequence)
        return history is not None and any(
            now - _silent_since(timing.progress.get(sequence), history) <= patience
            for timing in self._sources.values()
        )

    def describe(self, source: str) -> dict[str, float | None]:
        """For `GET /v1/speculation`, in milliseconds."""
        timing = self._sources.get(source, _SourceTiming())
        return {"first_draft_ms": _ms(timing.first.value), "token_ms": _ms(timing.token.value)}

    def _growth(self, timing: _SourceTiming, progress: _DraftProgress, now: float) -> Arrival | None:
        """Of a draft that is alive."""
        if timing.token.value is None:
            return None
        waited = now - progress.grown_at
        if self._is_late(timing.token, waited):
            return self._resumption(timing, progress, now)
        return Arrival(self._remaining(timing.token, waited), 1, timing.token.value)

    def _resumption(self, timing: _SourceTiming, progress: _DraftProgress, now: float) -> Arrival | None:
        """Of a source that had drafted as far as it should, and has since seen further committed tokens."""
        if timing.token.value is None or progress.unseen_since is None:
            return None
        waited = now - progress.unseen_since
        if self._is_late(timing.first, waited):
            return None
        return Arrival(self._remaining(timing.first, waited), 1, timing.token.value)

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

    def _learn_growth(self, timing: _SourceTiming, progress: _DraftProgress, end: int, now: float) -> None:
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


def _silent_since(progress: _DraftProgress | None, history: _CommitHistory) -> float:
    if progress is None:
        return history.opened_at
    if progress.dead_since is None or progress.unseen_since is None:
        return progress.grown_at
    return progress.unseen_since


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)
