"""How many draft tokens will be right, and when more of them arrive: learned from all drafts and commits.

How likely a token is right: its source's confidence, corrected by the outcomes of such tokens so far.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

from lead.engine.speculation.arrivals import Arrivals, Timeline
from lead.engine.speculation.constants import DEFAULTS, SpeculationConstants
from lead.engine.speculation.drafts import Agreement, Drafts, TokenOutcome
from lead.engine.speculation.policy import FutureDraft

_MAX_PLACES = 16
"""The last place counts all further ones as well."""


@dataclass(slots=True)
class _Counts:
    """Counts of outcomes, weighted by their age."""

    n_outcomes: float = 0.0
    n_right: float = 0.0

    def add(self, right: bool, decay: float) -> None:
        self.n_outcomes = self.n_outcomes * decay + 1
        self.n_right = self.n_right * decay + right


@dataclass(slots=True)
class _SourceRecord:
    """`bins` are by confidence and agreement; those without agreement count all outcomes."""

    bins: defaultdict[tuple[int, Agreement | None], _Counts] = field(
        default_factory=lambda: defaultdict(_Counts)
    )
    by_place: list[list[int]] = field(default_factory=lambda: [[0, 0] for _ in range(_MAX_PLACES)])
    mean: _Counts = field(default_factory=_Counts)


class Forecast:
    """Written by the manager. `arrivals`: when tokens of backs arrive."""

    def __init__(self, constants: SpeculationConstants = DEFAULTS) -> None:
        self.arrivals = Arrivals(constants)
        self._edges = constants.confidence_edges
        self._max_awaited = constants.max_awaited
        self._decay = constants.acceptance_decay
        self._n_prior = constants.acceptance_prior  # outcomes that a prior counts for
        self._unknown = constants.unknown_acceptance
        self._mean_decay = constants.mean_acceptance_decay
        self._n_deviations = constants.inline_upper_deviations
        self._records: defaultdict[str, _SourceRecord] = defaultdict(_SourceRecord)

    @property
    def sources(self) -> list[str]:
        """The sources whose tokens have been accepted or rejected so far, or that are connected."""
        return sorted({*self._records, *self.arrivals.known})

    def learn(self, outcomes: Iterable[TokenOutcome]) -> None:
        """Count outcomes of proposed tokens."""
        decay = self._decay
        for outcome in outcomes:
            record = self._records[outcome.source]
            bin_ = self._bin_of(outcome.confidence)
            record.bins[bin_, None].add(outcome.right, decay)
            if outcome.agreement != "single":
                record.bins[bin_, outcome.agreement].add(outcome.right, decay)
            record.mean.add(outcome.right, self._mean_decay)
            place = min(outcome.place, _MAX_PLACES - 1)
            record.by_place[place][0] += 1
            record.by_place[place][1] += outcome.right

    def probability(self, source: str, confidence: float | None, agreement: Agreement) -> float:
        """That a token is accepted if those before it are: a `drafts.EstimateAcceptance`."""
        prior = self._unknown if confidence is None else confidence
        record = self._records.get(source)
        if record is None:
            return prior
        bin_, n_prior = self._bin_of(confidence), self._n_prior
        if all_ := record.bins.get((bin_, None)):  # the hot path of every step: `_posterior` written out
            prior = (all_.n_right + n_prior * prior) / (all_.n_outcomes + n_prior)
        if agreement != "single" and (some := record.bins.get((bin_, agreement))):
            prior = (some.n_right + n_prior * prior) / (some.n_outcomes + n_prior)
        return prior

    def mean(self, source: str) -> float:
        """The probability for a token of `source` that has not arrived yet."""
        record = self._records.get(source)
        return self._posterior(record.mean, self._unknown) if record else self._unknown

    def upper_mean(self, source: str) -> float:
        """An upper confidence bound of `mean`, for sources that draft only if that seems to pay.

        Otherwise some bad luck would end its drafts, and nothing would show that it was bad luck.
        """
        mean = self.mean(source)
        record = self._records.get(source)
        n_outcomes = record.mean.n_outcomes if record else 0.0
        deviation = math.sqrt(mean * (1 - mean) / (n_outcomes + self._n_prior))
        return min(1.0, mean + self._n_deviations * deviation)

    def awaited(
        self, drafts: Drafts, timeline: Timeline, source: str, n_useful: int, now: float
    ) -> FutureDraft | None:
        """What a back is about to add to its draft of a sequence; None: nothing, as far as is known."""
        arrival = self.arrivals.expected(timeline, source, now)
        if arrival is None:
            return None
        n_most = min(n_useful, self._max_awaited)
        return self.future(drafts, source, self.mean(source), n_useful, n_most)._replace(arrival=arrival)

    def future(self, drafts: Drafts, source: str, mean: float, n_useful: int, n_most: int) -> FutureDraft:
        """A source's draft with its next tokens, which are right with probability `mean`, up to `n_most`.

        Where others have proposed a token already, it shows how hard that place is: what makes theirs less
        likely than usual does so half as much to this source's.
        """
        own, following = drafts.outlook(source, self.probability)
        del own[n_useful:]
        n_drafted = len(own)
        own += [min(1.0, max(0.0, mean + (each - self.mean(other)) / 2)) for other, each in following]
        n_most = max(n_drafted, n_most)
        own += [mean] * (n_most - len(own))
        return FutureDraft(tuple(accumulate(own[:n_most], mul)), n_drafted)

    def connect(self, backs: Iterable[str], own: Iterable[str], timelines: Iterable[Timeline]) -> None:
        """These backs are connected. Others are forgotten: another of the same name may be different."""
        known = {*backs, *own}
        for gone in self._records.keys() - known:
            del self._records[gone]
        self.arrivals.connect(backs, timelines)

    def describe(self, source: str) -> dict[str, object]:
        """For `GET /v1/speculation`: right shares by place (None: no tokens) and by confidence, and times."""
        record = self._records.get(source, _SourceRecord())
        n_places = max((place + 1 for place, (n, _) in enumerate(record.by_place) if n), default=0)
        return {
            "n_scored": sum(n for n, _ in record.by_place),
            "n_right": sum(right for _, right in record.by_place),
            "acceptance_by_position": [
                round(right / n, 4) if n else None for n, right in record.by_place[:n_places]
            ],
            "calibration": [
                {
                    "confidence_from": self._lower_edge(bin_),
                    "chance": round(counts.n_right / counts.n_outcomes, 4),
                }
                for (bin_, agreement), counts in sorted(record.bins.items(), key=lambda item: item[0][0])
                if agreement is None
            ],
            **self.arrivals.describe(source),
        }

    def _posterior(self, counts: _Counts, prior: float) -> float:
        return (counts.n_right + self._n_prior * prior) / (counts.n_outcomes + self._n_prior)

    def _bin_of(self, confidence: float | None) -> int:
        return -1 if confidence is None else bisect_right(self._edges, confidence)

    def _lower_edge(self, bin_: int) -> float | None:
        if bin_ < 0:
            return None
        return 0.0 if bin_ == 0 else self._edges[bin_ - 1]
