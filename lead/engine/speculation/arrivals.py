"""Predicts when draft tokens of a back arrive, from its latency and its drafting speed."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants
from lead.engine.speculation.drafts import Drafts, Probabilities, SourceProgress, SourceState

log = logging.getLogger("engine")


_PAUSE_PER_TOKEN = 0.5
"""The number of pauses that each punctual token makes up for."""


class Arrival(NamedTuple):
    """`n_first` more tokens arrive `first_in` seconds from now, then one every `per_token` seconds."""

    first_in: float
    n_first: int
    per_token: float

    def when(self, n_more: int) -> float:
        """Return the seconds from now until `n_more` more tokens have arrived."""
        return self.first_in + max(0, n_more - self.n_first) * self.per_token


AT_ONCE = Arrival(0.0, 1, 0.0)


class FutureDraft(NamedTuple):
    """The tokens that a source may add to its draft of a sequence, and when.

    probabilities: those of its `n_drafted` current tokens, then those of the tokens that may follow. A back
    adds tokens at its own pace (`arrival`). The inline drafter adds one token per round; its first round
    decodes `n_pending` tokens. catch_up: the seconds of this step that go into reading text that the drafter
    has missed.
    """

    probabilities: Probabilities
    n_drafted: int
    arrival: Arrival = AT_ONCE
    n_pending: int = 1
    catch_up: float = 0.0


@dataclass(slots=True)
class _RunningMean:
    """A running mean and mean deviation, as in RFC 6298; None until the first sample."""

    value: float | None = None
    deviation: float = 0.0

    def learn(self, sample: float, gain: float) -> None:
        if self.value is None:
            self.value, self.deviation = sample, sample / 2
            return
        self.deviation += gain * (abs(sample - self.value) - self.deviation)
        self.value += gain * (sample - self.value)


@dataclass(slots=True)
class _Timing:
    """The learned times of one back. first: seconds from a commit to a new draft of `n_first` tokens. token:
    seconds per further token.

    waited, drafted: the parts of `first` that the back reports for waiting for an earlier decode, and for
    drafting.
    """

    first: _RunningMean = field(default_factory=_RunningMean)
    waited: _RunningMean = field(default_factory=_RunningMean)
    drafted: _RunningMean = field(default_factory=_RunningMean)
    n_first: _RunningMean = field(default_factory=_RunningMean)
    token: _RunningMean = field(default_factory=_RunningMean)
    pauses: float = 0.0  # recent pauses, minus those that tokens in time made up for


class Arrivals:
    """The learned times of each back, in seconds of one clock.

    Each sample is a time between two events, so errors do not accumulate. Only gaps between tokens are
    compared with the known mean. Gaps that seem too long are learned only after there were too many of them.
    """

    def __init__(self, constants: SpeculationConstants = DEFAULTS) -> None:
        self._constants = constants
        self._sources: dict[str, _Timing] = {}

    @property
    def known(self) -> list[str]:
        """The names of all sources that are connected or have posted a draft."""
        return list(self._sources)

    @property
    def slowest_first(self) -> float:
        """The mean time from a commit to the next draft of the slowest source, in seconds; 0 if unknown."""
        return max((timing.first.value or 0.0 for timing in self._sources.values()), default=0.0)

    def connect(self, sources: Iterable[str], sequences: Iterable[Drafts]) -> None:
        """Set the connected sources; forget all others, and their progress with the open `sequences`."""
        names = set(sources)
        gone = self._sources.keys() - names
        for source in sorted(gone):
            self._log_times(source)
        self._sources = {source: self._sources.get(source, _Timing()) for source in sorted(names)}
        for drafts in sequences:
            drafts.disconnect(gone)

    def on_draft(self, drafts: Drafts, source: str, base: int, end: int, now: float, *, alive: bool) -> None:
        """Record that a draft of `source` for positions base … end - 1 arrived, `alive` or stale.

        Stale or repeated drafts do not count as activity, so a back cannot stall the lead by resending
        drafts.
        """
        timing = self._sources.setdefault(source, _Timing())
        last = drafts.by_source[source]
        if base >= last.base:
            match last.state:
                case SourceState.SILENT:
                    pass  # there is nothing to compare it with
                case SourceState.ANSWERING if base > last.base:
                    self._learn_answer(timing, drafts, last, base, end, now)
                case _:
                    self._learn_growth(timing, last, end, now)
            if base > last.base:
                last.base, last.end, last.grown_at = base, end, now
                last.unseen_since = drafts.passed(base)
            elif end > last.end:  # a repeated draft is no news
                last.end, last.grown_at = end, now
        if alive:
            last.dead_since = None

    def on_parts(self, source: str, waited: float, drafted: float) -> None:
        """Record the seconds that `source` reports for waiting and drafting, between a rejection and its next
        draft.
        """
        timing = self._sources.setdefault(source, _Timing())
        timing.waited.learn(waited, self._constants.arrival_gain)
        timing.drafted.learn(drafted, self._constants.arrival_gain)

    def expected(self, drafts: Drafts, source: str, now: float) -> Arrival | None:
        """Return when more tokens of `source` will arrive.

        None if none are expected: the source is silent, finished, late or unknown.
        """
        timing, last = self._sources.get(source), drafts.by_source.get(source)
        if timing is None or last is None:
            return None
        match last.state:
            case SourceState.SILENT:
                return None
            case SourceState.GROWING:
                return self._growth(timing, timing.token, now - last.grown_at)
            case SourceState.BEHIND:
                growth = self._growth(timing, timing.token, now - last.grown_at)
                return growth or self._growth(timing, timing.first, now - (last.unseen_since or 0.0))
            case SourceState.ANSWERING:
                return self._answer(timing, last, drafts.last_commit, now)

    def is_drafting(self, drafts: Drafts, now: float, patience: float) -> bool:
        """Return whether a source owes a draft for a sequence and was silent for at most `patience`
        seconds.
        """
        records = (drafts.by_source.get(source) for source in self._sources)
        return any(now - (each.silent_since if each else drafts.opened_at) <= patience for each in records)

    def describe(self, source: str) -> dict[str, float | None]:
        """Return a source's times for `GET /v1/speculation`, in milliseconds."""
        timing = self._sources.get(source, _Timing())
        return {
            "first_draft_ms": _ms(timing.first.value),
            "waited_ms": _ms(timing.waited.value),
            "drafted_ms": _ms(timing.drafted.value),
            "token_ms": _ms(timing.token.value),
        }

    def _log_times(self, source: str) -> None:
        timing = self._sources[source]
        if (first := timing.first.value) is None:
            return
        waited, drafted = timing.waited.value, timing.drafted.value
        parts = ""
        # The means are of different drafts, so the parts may exceed the whole. Then they are left out.
        if waited is not None and drafted is not None and (way := first - waited - drafted) >= 0:
            parts = (
                f": {1000 * waited:.1f} ms waiting, {1000 * drafted:.1f} ms drafting, "
                f"{1000 * way:.1f} ms on the way"
            )
        log.info("back %s sent its first new token %.1f ms after a correction%s", source, 1000 * first, parts)

    def _growth(self, timing: _Timing, mean: _RunningMean, waited: float) -> Arrival | None:
        """Return when a living draft grows: one token every `mean` seconds, of which `waited` have passed."""
        if timing.token.value is None or self._is_late(mean, waited):
            return None
        return Arrival(self._remaining(mean, waited), 1, timing.token.value)

    def _answer(
        self, timing: _Timing, last: SourceProgress, last_commit: float, now: float
    ) -> Arrival | None:
        """Return when the source sends a new draft, after its last one became stale."""
        if self._is_late(timing.first, now - last.silent_since):
            return None
        n_first = max(1, round(timing.n_first.value or 1.0))
        first_in = self._remaining(timing.first, now - last_commit)
        return Arrival(first_in, n_first, timing.token.value or 0.0)

    def _is_late(self, mean: _RunningMean, waited: float) -> bool:
        """Return whether tokens are so late that waiting does not pay; True if nothing is known."""
        if mean.value is None:
            return True
        constants = self._constants
        latest = mean.value + constants.patience_deviations * mean.deviation + constants.min_patience_s
        return waited > latest

    def _remaining(self, mean: _RunningMean, waited: float) -> float:
        """Return the expected seconds until arrival; for overdue tokens, the mean deviation."""
        remaining = (mean.value or 0.0) - waited
        return remaining if remaining > 0 else max(mean.deviation, self._constants.min_remaining_s)

    def _learn_answer(  # noqa: PLR0917 - what a draft is compared with
        self, timing: _Timing, drafts: Drafts, last: SourceProgress, base: int, end: int, now: float
    ) -> None:
        """Learn the time of an answer, unless the draft was under way before its predecessor became stale."""
        if base >= (last.dead_since or 0) and (at := drafts.reached(base)) is not None:
            timing.first.learn(max(0.0, now - at), self._constants.arrival_gain)
            timing.n_first.learn(end - base, self._constants.arrival_gain)

    def _learn_growth(self, timing: _Timing, last: SourceProgress, end: int, now: float) -> None:
        if end <= last.end:
            return
        per_token = (now - last.grown_at) / (end - last.end)
        if timing.token.value is not None and per_token > self._constants.pause_factor * timing.token.value:
            timing.pauses += 1
            if timing.pauses < self._constants.max_pauses:
                return
            timing.token, timing.pauses = _RunningMean(), 0.0
        else:
            timing.pauses = max(0.0, timing.pauses - _PAUSE_PER_TOKEN)
        timing.token.learn(per_token, self._constants.arrival_gain)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)
