"""When the next draft tokens of a source will be there: how far away it is, how fast it drafts."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

_GAIN = 0.2
"""Weight of a new sample in a running mean (of the mean deviation, too, as in RFC 6298)."""
_PATIENCE = 4.0
"""A source that is late by more than so many mean deviations has gone quiet."""
_LEAST_PATIENCE_S = 0.002
_LEAST_LEFT_S = 0.0005
"""What is overdue is not there yet."""
_OUTLIER = 4.0
"""A gap so many times longer than usual is a pause, not the time of a token …"""
_MOST_PAUSES = 3
"""… unless there are so many in a row: then the usual was wrong (two drafts that were read together)."""
_MOST_COMMITS = 64
"""A source that answers news so many commits old is not worth waiting for."""


class Arrival(NamedTuple):
    """`n_first` more tokens in `first_in` seconds from now, each further one `per_token` later."""

    first_in: float
    n_first: int
    per_token: float

    def when(self, n_more: int) -> float:
        """Seconds from now until `n_more` tokens are there."""
        return self.first_in + max(0, n_more - self.n_first) * self.per_token


@dataclass(slots=True)
class _Mean:
    """A running mean with its mean deviation; None until the first sample."""

    value: float | None = None
    deviation: float = 0.0

    def learn(self, sample: float) -> None:
        if self.value is None:
            self.value, self.deviation = sample, sample / 2
            return
        self.deviation += _GAIN * (abs(sample - self.value) - self.deviation)
        self.value += _GAIN * (sample - self.value)

    @property
    def latest(self) -> float:
        """Later than this it should not be."""
        return (self.value or 0.0) + _PATIENCE * self.deviation + _LEAST_PATIENCE_S

    def left(self, elapsed: float) -> float:
        """How long it will still take; what is overdue is late by about as much as others were."""
        left = (self.value or 0.0) - elapsed
        return left if left > 0 else max(self.deviation, _LEAST_LEFT_S)


@dataclass(slots=True)
class _Text:
    """When a sequence had how many committed tokens: (n_committed, time), the last few commits."""

    opened_at: float
    commits: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_MOST_COMMITS))

    @property
    def last_commit(self) -> float:
        return self.commits[-1][1]

    def reached(self, n_committed: int) -> float | None:
        """When it had exactly `n_committed` tokens; None if that was never so, or too long ago."""
        return next((time for n, time in reversed(self.commits) if n == n_committed), None)

    def passed(self, n_committed: int) -> float | None:
        """When it first had more, as far as is remembered; None if it has no more."""
        return next((time for n, time in self.commits if n > n_committed), None)


@dataclass(slots=True)
class _Watch:
    """A source and a sequence: its last draft followed `base` tokens and reached to position `end`.

    `died_with`: how many tokens were committed when nothing of it lived any more; None: something lives.
    `unseen_since`: when the text went on beyond what it had seen; None: it has seen everything.
    """

    base: int = -1  # it has not been heard yet
    end: int = 0
    grown_at: float = 0.0
    died_with: int | None = 0
    unseen_since: float | None = None


@dataclass(slots=True)
class _Source:
    first: _Mean = field(default_factory=_Mean)
    n_first: _Mean = field(default_factory=_Mean)
    token: _Mean = field(default_factory=_Mean)
    n_pauses: int = 0  # in a row
    watches: dict[str, _Watch] = field(default_factory=dict)


class Arrivals:
    """Times are seconds of one clock."""

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}
        self._texts: dict[str, _Text] = {}

    @property
    def known(self) -> list[str]:
        """All sources that are connected or have posted."""
        return list(self._sources)

    def connected(self, sources: Iterable[str]) -> set[str]:
        """These sources are connected now; returns those that are not any more."""
        names = set(sources)
        gone = self._sources.keys() - names
        for source in gone:
            del self._sources[source]
        for source in names:
            self._sources.setdefault(source, _Source())
        return gone

    @property
    def slowest_first(self) -> float:
        """Seconds from news to an answer, of the source that takes longest; 0 as long as nothing is known."""
        return max((record.first.value or 0.0 for record in self._sources.values()), default=0.0)

    def opened(self, sequence: str, n_committed: int, now: float) -> None:
        """A sequence begins; the sources are being told."""
        self._texts[sequence] = _Text(now)
        self._texts[sequence].commits.append((n_committed, now))

    def committed(self, sequence: str, n_committed: int, now: float) -> None:
        """A sequence has `n_committed` tokens now; the sources are being told."""
        self._texts[sequence].commits.append((n_committed, now))
        for record in self._sources.values():
            if (watch := record.watches.get(sequence)) and watch.unseen_since is None:
                watch.unseen_since = now

    def closed(self, sequence: str) -> None:
        """A sequence has ended."""
        self._texts.pop(sequence, None)
        for record in self._sources.values():
            record.watches.pop(sequence, None)

    def posted(self, sequence: str, source: str, base: int, end: int, now: float) -> None:
        """A draft of `source` arrived, dead or alive: positions base … end - 1.

        One that was overtaken, or brings nothing new, is no sign of life: nobody keeps the lead waiting by
        repeating himself.
        """
        text = self._texts.get(sequence)
        if text is None:
            return
        record = self._sources.setdefault(source, _Source())
        watch = record.watches.setdefault(sequence, _Watch())
        if base < watch.base:
            return
        if watch.died_with is None or base == watch.base:
            self._learn_growth(record, watch, end, now)
        elif watch.base >= 0 and base >= watch.died_with and (told_at := text.reached(base)) is not None:
            record.first.learn(max(0.0, now - told_at))
            record.n_first.learn(end - base)
        if base > watch.base:
            watch.base, watch.end, watch.grown_at = base, end, now
            watch.unseen_since = text.passed(base)
        elif end > watch.end:
            watch.end, watch.grown_at = end, now

    def lives(self, sequence: str, source: str) -> None:
        """What it posted is on the board."""
        self._sources[source].watches[sequence].died_with = None

    def died(self, sequence: str, source: str, n_committed: int) -> None:
        """Nothing of its draft lives any more, now that `n_committed` tokens are committed."""
        if (record := self._sources.get(source)) and (watch := record.watches.get(sequence)):
            watch.died_with = n_committed

    def sources(self, sequence: str) -> list[str]:
        """Those who have drafted for `sequence`."""
        return [name for name, record in self._sources.items() if sequence in record.watches]

    def expected(self, sequence: str, source: str, now: float) -> Arrival | None:
        """When more will come; None if nothing is to be expected: quiet, finished, or not known."""
        record, text = self._sources.get(source), self._texts.get(sequence)
        watch = record.watches.get(sequence) if record else None
        if record is None or text is None or watch is None:
            return None
        per_token = record.token.value or 0.0
        if watch.died_with is None:
            waited = now - watch.grown_at
            if record.token.value is None:
                return None
            if waited <= record.token.latest:
                return Arrival(record.token.left(waited), 1, per_token)
            return self._resumption(record, watch, now)
        if record.first.value is None or now - _silent_since(watch, text) > record.first.latest:
            return None
        n_first = max(1, round(record.n_first.value or 1.0))
        return Arrival(record.first.left(now - text.last_commit), n_first, per_token)

    def at_work(self, sequence: str, now: float, patience: float) -> bool:
        """Whether some source owes a word on `sequence`, and not for longer than `patience` seconds."""
        text = self._texts.get(sequence)
        return text is not None and any(
            now - _silent_since(record.watches.get(sequence), text) <= patience
            for record in self._sources.values()
        )

    def describe(self, source: str) -> dict[str, float | None]:
        """For people and dashboards, in milliseconds."""
        record = self._sources.get(source, _Source())
        return {"first_draft_ms": _ms(record.first.value), "token_ms": _ms(record.token.value)}

    @staticmethod
    def _resumption(record: _Source, watch: _Watch, now: float) -> Arrival | None:
        """Of one that had drafted as far as it should, and has just been told that the text went on."""
        if record.first.value is None or record.token.value is None or watch.unseen_since is None:
            return None
        waited = now - watch.unseen_since
        if waited > record.first.latest:
            return None
        return Arrival(record.first.left(waited), 1, record.token.value)

    def _learn_growth(self, record: _Source, watch: _Watch, end: int, now: float) -> None:
        if end <= watch.end:
            return
        per_token = (now - watch.grown_at) / (end - watch.end)
        if record.token.value is not None and per_token > _OUTLIER * record.token.value:
            record.n_pauses += 1
            if record.n_pauses < _MOST_PAUSES:
                return
            record.token = _Mean()
        record.n_pauses = 0
        record.token.learn(per_token)


def _silent_since(watch: _Watch | None, text: _Text) -> float:
    if watch is None:
        return text.opened_at
    if watch.died_with is None or watch.unseen_since is None:
        return watch.grown_at
    return watch.unseen_since


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)
