"""How likely a draft token is right: what its source says of it, corrected by what came of such tokens."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from lead.engine.speculation.board import Company, Trial

_EDGES = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96, 0.99)
"""Between them lie the bins of confidence: narrow at the top, where most tokens are."""
_DECAY = 0.97
"""Weight of a bin's past at each new trial: it remembers about 30 of them."""
_PRIOR_TRIALS = 3.0
_UNKNOWN = 0.5
"""For sources that state no confidence, before there are trials."""
_MOST_PLACES = 16
"""The last one stands for all further ones, too."""


@dataclass(slots=True)
class _Bin:
    """Decayed counts. Starts as `_PRIOR_TRIALS` trials with the outcome `prior`."""

    n_trials: float = 0.0
    n_right: float = 0.0

    def learn(self, right: bool) -> None:
        self.n_trials = self.n_trials * _DECAY + 1
        self.n_right = self.n_right * _DECAY + right

    def chance(self, prior: float) -> float:
        return (self.n_right + _PRIOR_TRIALS * prior) / (self.n_trials + _PRIOR_TRIALS)


@dataclass(slots=True)
class _Record:
    """Of one source. `bins` are by confidence and company; those without company hold everything."""

    bins: defaultdict[tuple[int, Company | None], _Bin] = field(default_factory=lambda: defaultdict(_Bin))
    by_place: list[list[int]] = field(default_factory=lambda: [[0, 0] for _ in range(_MOST_PLACES)])
    mean: _Bin = field(default_factory=_Bin)


class Acceptance:
    """Learns from every trial, whether the token was in a batch or not."""

    def __init__(self) -> None:
        self._records: defaultdict[str, _Record] = defaultdict(_Record)

    @property
    def sources(self) -> list[str]:
        """All that have been tried."""
        return list(self._records)

    def learn(self, trials: Iterable[Trial]) -> None:
        """Take in what became of proposed tokens."""
        for trial in trials:
            record = self._records[trial.source]
            bin_ = _bin_of(trial.confidence)
            record.bins[bin_, None].learn(trial.right)
            if trial.company != "alone":
                record.bins[bin_, trial.company].learn(trial.right)
            record.mean.learn(trial.right)
            place = min(trial.place, _MOST_PLACES - 1)
            record.by_place[place][0] += 1
            record.by_place[place][1] += trial.right

    def chance(self, source: str, confidence: float | None, company: Company) -> float:
        """The chance that a token is right, given that those before it are: a `board.Chance`."""
        prior = _UNKNOWN if confidence is None else confidence
        record = self._records.get(source)
        if record is None:
            return prior
        bin_ = _bin_of(confidence)
        if all_ := record.bins.get((bin_, None)):  # the hot path of every step: `_Bin.chance` written out
            prior = (all_.n_right + _PRIOR_TRIALS * prior) / (all_.n_trials + _PRIOR_TRIALS)
        if company != "alone" and (some := record.bins.get((bin_, company))):
            prior = (some.n_right + _PRIOR_TRIALS * prior) / (some.n_trials + _PRIOR_TRIALS)
        return prior

    def mean(self, source: str) -> float:
        """The chance of a token of `source` about which nothing is known yet."""
        record = self._records.get(source)
        return record.mean.chance(_UNKNOWN) if record else _UNKNOWN

    def forget(self, source: str) -> None:
        """It has left; another of the same name may be another."""
        self._records.pop(source, None)

    def describe(self, source: str) -> dict[str, object]:
        """For people and dashboards: right over tried by place (None: not tried), and the calibration."""
        record = self._records.get(source, _Record())
        n_places = max((place + 1 for place, (n, _) in enumerate(record.by_place) if n), default=0)
        return {
            "n_scored": sum(n for n, _ in record.by_place),
            "n_right": sum(right for _, right in record.by_place),
            "acceptance_by_position": [
                round(right / n, 4) if n else None for n, right in record.by_place[:n_places]
            ],
            "calibration": [
                {"confidence_from": _lower_edge(bin_), "chance": round(counts.n_right / counts.n_trials, 4)}
                for (bin_, company), counts in sorted(record.bins.items(), key=lambda item: item[0][0])
                if company is None
            ],
        }


def _bin_of(confidence: float | None) -> int:
    return -1 if confidence is None else bisect_right(_EDGES, confidence)


def _lower_edge(bin_: int) -> float | None:
    if bin_ < 0:
        return None
    return 0.0 if bin_ == 0 else _EDGES[bin_ - 1]
